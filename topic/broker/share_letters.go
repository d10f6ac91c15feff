package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/share"
)

// Records of a share group that are dead wait in its window until their dead letters are durable in another topic. So a
// letter is never lost, and a server that ends between both writes it twice.

const (
	// lettersAtOnce bounds the dead letters of one batch, lettersBytes its size unless it has only one, and lettersWriters
	// the windows whose letters are written at a time.
	lettersAtOnce  = 500
	lettersBytes   = 1 << 20
	lettersWriters = 4
	// lettersRemote bounds a dead letter that another node has to append.
	lettersRemote = 2 << 20
	// Letters that could not be written are tried again after a second, then after twice that, up to a minute.
	lettersAgain, lettersAgainMost = time.Second, time.Minute
)

// The headers of a dead letter, and what the last one says, as in Kafka.
const (
	letterHeaders   = "__dlq.errors."
	letterTopic     = letterHeaders + "topic"
	letterPartition = letterHeaders + "partition"
	letterOffset    = letterHeaders + "offset"
	letterGroup     = letterHeaders + "group"
	letterCount     = letterHeaders + "delivery.count"
	letterMessage   = letterHeaders + "message"

	messageRejected  = "Offset rejected by client."
	messageExhausted = "Offset delivery count exceeded the threshold."
)

// bury begins to write dead letters, if records are dead. mu is held.
func (s *Share) bury() {
	if s.burying || s.ended != nil || len(s.window.Dead(1)) == 0 {
		return
	}
	s.burying = true
	s.users++
	s.broker.group.Go("write dead letters of a share group", s.writeLetters)
}

// writeLetters writes dead letters until no record is dead, or the window is not used any more.
func (s *Share) writeLetters(ctx context.Context) error {
	defer s.Close()
	wait := lettersAgain
	for s.hasDead() {
		err := s.writeSome(ctx)
		if err == nil {
			wait = lettersAgain
			continue
		}
		s.broker.metrics.letterFailures.Inc()
		s.broker.log.Error("dead letters of a share group not written, trying again", "group", s.group, "topic", s.topic.name, "partition", s.number, "error", err)
		if !lifecycle.Sleep(ctx, nil, wait) {
			return nil
		}
		wait = min(2*wait, lettersAgainMost)
	}
	return nil
}

// hasDead reports whether dead letters are to be written; without any, the next record that dies begins again.
func (s *Share) hasDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.burying = s.usable() == nil && len(s.window.Dead(1)) > 0
	return s.burying
}

// writeSome writes the dead letters of the first records that are dead, and settles these.
func (s *Share) writeSome(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	if err := s.broker.letters.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.broker.letters.Release(1)
	settings, err := s.broker.ShareSettings(ctx, s.group)
	if err != nil {
		return err
	}
	limits := s.broker.shareLimits(settings, s.topic.name)
	s.mu.Lock()
	s.window.SetLimits(limits)
	dead, version := s.window.Dead(lettersAtOnce), s.version
	if len(dead) == 0 { // there are no dead letters any more
		s.version++
		version = s.version
	}
	s.mu.Unlock()
	if err := s.Await(ctx, version); err != nil || len(dead) == 0 {
		return err
	}
	offsets, err := s.appendLetters(ctx, settings, dead)
	if err != nil {
		return fmt.Errorf("topic %s: %w", settings.DeadLetters, err)
	}
	s.broker.metrics.letters.Add(float64(len(offsets)))
	return s.Await(ctx, s.buried(offsets))
}

// buried settles records that have dead letters.
func (s *Share) buried(offsets []int64) (version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range offsets {
		s.window.Bury(at, at)
	}
	s.version++
	s.changed()
	return s.version
}

// appendLetters appends one batch of dead letters durably, and returns the offsets of their records.
func (s *Share) appendLetters(ctx context.Context, settings topic.GroupSettings, dead []share.Dead) (offsets []int64, err error) {
	to, err := s.broker.Topic(settings.DeadLetters)
	if err != nil {
		return nil, err
	}
	number := s.number % int32(len(to.Partitions()))
	p, err := to.Find(number)
	if err != nil {
		return nil, err
	}
	most := int(to.Settings().MaxMessageBytes) - topic.BatchOverhead
	if p.Leader() != s.broker.Node() {
		most = min(most, lettersRemote)
	}
	records, offsets, err := s.letters(ctx, dead, most, settings.CopyRecord)
	if err != nil {
		return nil, err
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{})
	if err != nil {
		return nil, err
	}
	request := &lettersRequest{number, batch}
	switch at := p.Leader(); at {
	case s.broker.Node():
		return offsets, s.broker.lettersHere(ctx, to.name, request)
	case -1:
		return nil, fmt.Errorf("%w: no leader now of %s", topic.ErrNoAnswer, p)
	default:
		_, err := s.broker.askLeader(ctx, &otherLeader{at, []int32{number}}, leaderRequest{Topic: to.name, Letters: request})
		return offsets, err
	}
}

// lettersRequest asks a node to append dead letters to a partition that it leads.
type lettersRequest struct {
	Partition int32  `json:"partition"`
	Batch     []byte `json:"batch"`
}

// lettersHere appends dead letters to a partition that this broker leads, durably.
func (b *Broker) lettersHere(ctx context.Context, name string, r *lettersRequest) error {
	to, err := b.Topic(name)
	if err != nil {
		return err
	}
	if !to.Settings().DeadLetters {
		return fmt.Errorf("%w: it takes no dead letters: set %s=true", topic.ErrInvalidSetting, topic.SettingDeadLetters)
	}
	batches, err := topic.SplitBatches(r.Batch)
	if err != nil {
		return err
	}
	appending, err := to.Append(ctx, r.Partition, batches)
	if err == nil {
		_, _, err = appending.Wait(ctx)
	}
	return err
}

// letters returns the dead letters of the first of these records, and their offsets. A record that is larger than most bytes,
// or was removed, is not copied.
func (s *Share) letters(ctx context.Context, dead []share.Dead, most int, withCopy bool) (records []topic.Record, offsets []int64, err error) {
	from, size, now := copies{share: s, dead: dead}, 0, time.Now().UnixMilli()
	for _, d := range dead {
		about := s.about(d)
		for at := d.First; at <= d.Last; at++ {
			var letter topic.Record
			if withCopy {
				if letter, err = from.at(ctx, at); err != nil {
					return nil, nil, err
				}
			}
			letter.Headers = append(slices.Clip(letter.Headers), about...)
			letter.Headers = append(letter.Headers, topic.Header{Key: letterOffset, Value: strconv.AppendInt(nil, at, 10)})
			if sizeOfLetter(&letter) > most {
				letter = topic.Record{Headers: letter.Headers[len(letter.Headers)-len(about)-1:]}
			}
			if size += sizeOfLetter(&letter); size > min(most, lettersBytes) && len(records) > 0 {
				return records, offsets, nil
			}
			letter.Offset, letter.Timestamp = int64(len(records)), now
			records, offsets = append(records, letter), append(offsets, at)
		}
	}
	return records, offsets, nil
}

// about returns the headers that the dead letters of some records share.
func (s *Share) about(d share.Dead) []topic.Header {
	message := messageExhausted
	if d.Rejected {
		message = messageRejected
	}
	return []topic.Header{
		{Key: letterTopic, Value: []byte(s.topic.name)},
		{Key: letterPartition, Value: strconv.AppendInt(nil, int64(s.number), 10)},
		{Key: letterGroup, Value: []byte(s.group)},
		{Key: letterCount, Value: strconv.AppendInt(nil, int64(d.Count), 10)},
		{Key: letterMessage, Value: []byte(message)},
	}
}

// sizeOfLetter returns the most bytes of a record in a batch.
func sizeOfLetter(r *topic.Record) int {
	size := 32 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += 10 + len(h.Key) + len(h.Value)
	}
	return size
}

// copies reads the records that are dead, in order.
type copies struct {
	share *Share
	dead  []share.Dead
	// next is the offset before which all that are there are in known.
	next  int64
	known map[int64]topic.Record
}

// at returns the record at an offset, without offset and time; an empty one if it was removed.
func (c *copies) at(ctx context.Context, offset int64) (topic.Record, error) {
	if offset >= c.next {
		if err := c.read(ctx, offset); err != nil {
			return topic.Record{}, err
		}
	}
	return c.known[offset], nil
}

// read reads some records from an offset on, at least up to it.
func (c *copies) read(ctx context.Context, offset int64) error {
	c.known, c.next = map[int64]topic.Record{}, offset+1
	fetched, err := c.share.topic.ReadCommitted(ctx, c.share.number, offset, lettersBytes)
	if errors.Is(err, topic.ErrOffsetOutOfRange) {
		return nil
	}
	size := 0
	each(fetched.Data, func(b topic.Batch) {
		if err != nil || size >= lettersBytes || !c.wants(b.Base(), b.Next()-1) {
			return
		}
		err = c.share.broker.unpacker.Unpack(ctx, b.Compression(), b[topic.RecordsAt:], func(data []byte) error {
			reader := topic.NewRecordReader(b, data)
			for size < lettersBytes && reader.Next() {
				if r := reader.Record; r.Offset >= offset && c.wants(r.Offset, r.Offset) {
					size += sizeOfLetter(&r)
					c.known[r.Offset], c.next = copyOf(r), r.Offset+1
				}
			}
			return reader.Err
		})
	})
	return err
}

// wants reports whether some of the offsets are of dead records.
func (c *copies) wants(first, last int64) bool {
	return slices.ContainsFunc(c.dead, func(d share.Dead) bool { return d.First <= last && first <= d.Last })
}

// copyOf returns a copy of what a dead letter has of a record: not its headers if it was a dead letter itself.
func copyOf(r topic.Record) topic.Record {
	letter := topic.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, letterHeaders) {
			letter.Headers = append(letter.Headers, topic.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
		}
	}
	return letter
}
