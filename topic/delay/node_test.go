package delay_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
)

// pass sleeps in virtual time.
func pass(wait time.Duration) { <-time.After(wait) }

// delayDisk is the state that survives a crash of the node: the log of delayed records,
// and the partition.
type delayDisk struct {
	log topic.Log

	mu        sync.Mutex
	released  int64
	shown     []shownRecord
	committed map[string]time.Time // batches of idempotent producers
}

// shownRecord is a record that has appeared in the partition.
type shownRecord struct {
	value, id string
	due, at   int64
}

// delayNode is one run of a node. All its operations take a while, fail on demand, and do
// nothing once the node is cut off.
type delayNode struct {
	disk   *delayDisk
	delays *delay.Queue

	mu           sync.Mutex
	cut, closing bool
	producing    sync.WaitGroup
	// faults are applied to the next writes: "lost" and "unanswered".
	faults []string
}

func (n *delayNode) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// next takes a while, and returns the next fault.
func (n *delayNode) next() string {
	pass(3 * time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return "lost"
	}
	if len(n.faults) == 0 {
		return ""
	}
	fault := n.faults[0]
	n.faults = n.faults[1:]
	return fault
}

// faultyLog is the delay log as a node sees it.
type faultyLog struct {
	topic.Log
	node *delayNode
}

func (l faultyLog) Append(entry topic.Entry, done func(error)) {
	go func() {
		fault := l.node.next()
		if fault == "lost" {
			done(topic.ErrUncertain)
			return
		}
		l.Log.Append(entry, func(err error) {
			if fault == "unanswered" || l.node.isCut() {
				err = topic.ErrUncertain
			}
			done(err)
		})
	}()
}

func (n *delayNode) AppendReleased(_ context.Context, batch topic.Batch, number int64) error {
	fault := n.next()
	if fault == "lost" {
		return topic.ErrRetry
	}
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if number != n.disk.released+1 {
		panic(fmt.Sprintf("release %d after %d", number, n.disk.released))
	}
	n.disk.released = number
	if batch.Check() != nil {
		panic("released batch is corrupt")
	}
	for record, err := range batch.Records() {
		if err != nil {
			panic(err)
		}
		shown := shownRecord{value: string(record.Value), due: record.Timestamp, at: time.Now().UnixMilli()}
		for _, header := range record.Headers {
			if header.Key == topic.HeaderDelayID {
				shown.id = string(header.Value)
			}
		}
		n.disk.shown = append(n.disk.shown, shown)
	}
	if fault != "" {
		return topic.ErrRetry
	}
	return nil
}

func (n *delayNode) LastReleased(context.Context) (int64, error) {
	if n.next() == "lost" {
		return 0, topic.ErrRetry
	}
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.disk.released, nil
}

func (n *delayNode) Committed(id int64, epoch int16, last int32) bool {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	at, committed := n.disk.committed[fmt.Sprint(id, epoch, last)]
	return committed && time.Since(at) < forgetAfter
}

// forgetAfter is how long a producer is known.
const forgetAfter = 30 * time.Second

// produce handles a batch as a partition does: nil is an acknowledgement.
func (n *delayNode) produce(ctx context.Context, batch topic.Batch) error {
	n.mu.Lock()
	if n.closing {
		n.mu.Unlock()
		return topic.ErrClosed
	}
	n.producing.Add(1)
	n.mu.Unlock()
	defer n.producing.Done()
	id, epoch, first := batch.Producer()
	name := fmt.Sprint(id, epoch, first+batch.Count()-1)
	if n.repeated(name) {
		return nil
	}
	kept, delayed, err := topic.DelayConfig{}.Split(batch, uncompressed(batch), time.Now(), 0)
	if err != nil {
		return err
	}
	var addition *delay.Addition
	if delayed != nil {
		if addition, err = n.delays.Add(ctx, delayed); err != nil {
			return err
		}
	}
	fault := n.next()
	if fault != "lost" {
		if !n.append(name, id, kept) && addition != nil {
			addition.Drop()
			return nil
		}
	}
	switch {
	case n.isCut():
		return topic.ErrClosed // a dead node sends no answer
	case addition == nil:
	case fault == "":
		addition.Keep()
	case fault == "lost" && id >= 0:
		addition.Drop()
	default:
		addition.Unsure()
		n.delays.Resolve()
	}
	if fault != "" {
		return topic.ErrRetry
	}
	return nil
}

func (n *delayNode) repeated(name string) bool {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	_, committed := n.disk.committed[name]
	return committed
}

// append appends the records that are not delayed, unless the batch is a repeat.
func (n *delayNode) append(name string, id int64, kept topic.Batch) bool {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if _, committed := n.disk.committed[name]; committed {
		return false
	}
	if id >= 0 {
		n.disk.committed[name] = time.Now()
	}
	for record, err := range kept.Records() {
		if err != nil {
			panic(err)
		}
		n.disk.shown = append(n.disk.shown, shownRecord{value: string(record.Value)})
	}
	return true
}

// uncompressed returns the records of a batch.
func uncompressed(batch topic.Batch) []byte {
	data, err := topic.Decompress(batch.Compression(), batch[topic.RecordsAt:])
	if err != nil {
		panic(err)
	}
	return data
}
