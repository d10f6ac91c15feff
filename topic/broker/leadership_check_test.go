package broker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// consume reads to the end, again and again, from nodes whose epoch is not lower than the
// highest that it has seen, as Kafka clients do.
func (c *chaos) consume(random *rand.Rand) {
	var position, highWatermark int64
	var epoch int32
	latest := map[string]string{}
	for {
		c.mu.Lock()
		over := c.over
		c.mu.Unlock()
		if over {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.consumed = append(c.consumed, consumed{position, latest})
			return
		}
		<-time.After(time.Duration(5+random.IntN(30)) * time.Millisecond)
		orders, p := c.partition(int32(random.IntN(3)) + 1)
		if orders == nil || p.Epoch() < epoch {
			continue
		}
		fetched, err := orders.Read(context.Background(), 0, position, 1<<20)
		if err != nil {
			if errors.Is(err, topic.ErrOffsetOutOfRange) && fetched.Epoch >= epoch {
				c.fail("offset %d is out of range of %+v, epoch %d was seen", position, fetched.Ends, epoch)
			}
			continue
		}
		if fetched.Epoch < epoch {
			continue
		}
		if fetched.HighWatermark < highWatermark {
			c.fail("the high watermark fell from %d to %d in epoch %d", highWatermark, fetched.HighWatermark, fetched.Epoch)
		}
		epoch, highWatermark = fetched.Epoch, fetched.HighWatermark
		position = c.read(position, fetched, latest)
	}
}

// read records the result of a read at an offset, also in the latest values by key, and returns the
// next offset.
func (c *chaos) read(position int64, fetched broker.Fetched, latest map[string]string) int64 {
	batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
	if err != nil {
		c.fail("read: %v", err)
	}
	for _, b := range batches {
		if b.Base() > position && !c.compacts {
			c.fail("after offset %d comes %d", position, b.Base())
		}
		for record, err := range b.Records() {
			if err != nil {
				c.fail("record: %v", err)
				break
			}
			c.note(record)
			latest[string(record.Key)] = string(record.Value)
		}
		position = max(position, b.Next())
	}
	return position
}

func (c *chaos) note(record topic.Record) {
	value := string(record.Value)
	c.mu.Lock()
	before, again := c.seen[record.Offset]
	c.seen[record.Offset] = value
	due, delayed := c.due[value]
	c.mu.Unlock()
	if again && before != value {
		c.fail("offset %d has %q, and had %q", record.Offset, value, before)
	}
	if delayed && time.Now().Before(due) {
		c.fail("%q has appeared before it was due", value)
	}
}

// check compares the log with the results that clients have seen.
func (c *chaos) check() {
	var values []string // in order
	at := map[string]int64{}
	next, epoch := int64(0), int32(0)
	for _, entry := range c.nodes.Entries(c.log()) {
		if entry.Mark.Base != next || entry.Mark.Epoch < epoch {
			c.fail("entry %d begins at %d with epoch %d, after %d and %d", entry.Sequence, entry.Mark.Base, entry.Mark.Epoch, next, epoch)
		}
		next, epoch = entry.Mark.Next, entry.Mark.Epoch
		batches, err := topic.SplitBatches(entry.Data)
		if err != nil {
			c.fail("entry %d: %v", entry.Sequence, err)
		}
		for _, b := range batches {
			for record, err := range b.Records() {
				if err != nil {
					c.fail("entry %d: %v", entry.Sequence, err)
					break
				}
				value := string(record.Value)
				if _, again := at[value]; again {
					c.fail("%q is there twice", value)
				}
				at[value] = record.Offset
				values = append(values, value)
			}
		}
	}
	for offset, value := range c.seen {
		if at[value] != offset {
			c.fail("%q was read at %d, and is at %d", value, offset, at[value])
		}
	}
	for value, offset := range c.acked {
		if found, ok := at[value]; !ok || offset >= 0 && found != offset {
			c.fail("%q was acknowledged at %d, and is at %d (%v)", value, offset, found, ok)
		}
	}
	c.checkOrder(values)
}

// checkOrder checks that the records of each producer, except delayed ones, are in the
// order in which they were sent.
func (c *chaos) checkOrder(values []string) {
	last := map[string]int{}
	for _, value := range values {
		producer, number, _ := strings.Cut(value, "/")
		sequence, _ := strconv.Atoi(number)
		if c.delays && sequence%3 == 1 {
			continue
		}
		if before, ok := last[producer]; ok && before >= sequence {
			c.fail("%q comes after %d", value, before)
		}
		last[producer] = sequence
	}
}
