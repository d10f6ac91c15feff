package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// outcomesAtOnce is the maximum of outcomes that one call returns, and deadAtOnce that of
// dead letters read in one exchange.
const (
	outcomesAtOnce = 2000
	deadAtOnce     = 500
)

var errShort = errors.New("it is too short")

// Outcomes implements bulk.Store. Each outcome is a batch. Outcomes in the partial result
// have been deleted.
func (s *Store) Outcomes(ctx context.Context, id string, after uint64) (outcomes []bulk.Outcome, upTo uint64, err error) {
	st, err := s.find(ctx, id)
	if err != nil {
		return nil, after, err
	}
	first := int64(after) - st.record.Trimmed
	if first < 0 || int64(after) >= st.record.Outcomes {
		return nil, after, nil
	}
	key := s.shards[s.shardOfNumber(st.number)] + "o:" + strconv.FormatUint(st.number, 10)
	texts, err := ask(ctx, s, s.db.B().Lrange().Key(key).Start(first).Stop(first+outcomesAtOnce-1).Build(), asTexts)
	if err != nil {
		return nil, after, err
	}
	for _, text := range texts {
		o, err := decodeOutcome(text)
		if err != nil {
			return nil, after, fmt.Errorf("redis: an outcome of action %q: %w", id, err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, after + uint64(len(outcomes)), nil
}

// decodeOutcome decodes what finish in lua/ended.lua writes: '>I4BHdI4', values, error.
func decodeOutcome(text string) (o bulk.Outcome, err error) {
	raw := []byte(text)
	if len(raw) < 19 {
		return o, errShort
	}
	o.Index, o.Succeeded = int64(binary.BigEndian.Uint32(raw)), raw[4] == 1
	o.Attempts = int(binary.BigEndian.Uint16(raw[5:]))
	o.Took = time.Duration(math.Float64frombits(binary.BigEndian.Uint64(raw[7:]))) * time.Microsecond
	values := int(binary.BigEndian.Uint32(raw[15:]))
	if raw = raw[19:]; len(raw) < values {
		return o, errShort
	}
	if values > 0 {
		o.Values = raw[:values:values]
	}
	o.Error = string(raw[values:])
	return o, nil
}

// DeadLetters implements bulk.Store.
func (s *Store) DeadLetters(ctx context.Context, id string, from int64, limit int) (letters []bulk.DeadLetter, err error) {
	n, err := s.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	for bytes := 0; len(letters) < limit && bytes < bulk.MaxPageBytes; {
		page, err := s.deadPage(ctx, n, from, min(limit-len(letters), deadAtOnce), bulk.MaxPageBytes-bytes)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			page[i].Action = id
			bytes += len(page[i].Payload)
		}
		letters = append(letters, page...)
		from = page[len(page)-1].Index + 1
	}
	return letters, nil
}

func (s *Store) deadPage(ctx context.Context, n uint64, from int64, limit, bytes int) (letters []bulk.DeadLetter, err error) {
	parts, err := onShard(ctx, s, deadScript, s.shardOfNumber(n), asArray,
		strconv.FormatUint(n, 10), number(from), strconv.Itoa(limit), strconv.Itoa(bytes))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(parts); i += 2 {
		index, err1 := parts[i].AsInt64()
		text, err2 := parts[i+1].ToString()
		letter, err3 := decodeDead(text)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("redis: dead letter %d: %w", index, err)
		}
		letter.Index = index
		letters = append(letters, letter)
	}
	return letters, nil
}

// decodeDead decodes what finish in lua/ended.lua writes: '>HdI4', error, payload.
func decodeDead(text string) (d bulk.DeadLetter, err error) {
	raw := []byte(text)
	if len(raw) < 14 {
		return d, errShort
	}
	d.Attempts = int(binary.BigEndian.Uint16(raw))
	d.FailedAt = time.UnixMilli(int64(math.Float64frombits(binary.BigEndian.Uint64(raw[2:]))))
	why := int(binary.BigEndian.Uint32(raw[10:]))
	if raw = raw[14:]; len(raw) < why {
		return d, errShort
	}
	d.Error, d.Payload = string(raw[:why]), raw[why:]
	return d, nil
}
