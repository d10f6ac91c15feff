package aggregate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"time"
)

// Durations are counted in buckets of nanoseconds whose width grows with the value: 64
// buckets for each power of two, as in HdrHistogram (https://hdrhistogram.org). The middle of
// a bucket differs from any value in it by at most 1/128.
const (
	latencyBits    = 6
	latencyPerTwo  = 1 << latencyBits
	latencyBuckets = (63-latencyBits)*latencyPerTwo + latencyPerTwo
)

// latencyState is a histogram of durations. Max and mean are exact, to the
// nanosecond.
type latencyState struct {
	counts []uint64 // nil, or one count for each bucket
	total  uint64   // the sum of counts
	max    uint64
	// sumHigh and sumLow are the 128-bit sum of all durations.
	sumHigh, sumLow uint64
}

func latencyBucket(nanoseconds uint64) int {
	shift := max(bits.Len64(nanoseconds)-latencyBits-1, 0)
	return shift*latencyPerTwo + int(nanoseconds>>shift)
}

// latencyMiddle returns the middle of a bucket.
func latencyMiddle(bucket int) uint64 {
	shift := max(bucket/latencyPerTwo-1, 0)
	low := uint64(bucket-shift*latencyPerTwo) << shift
	return low + (1<<shift)/2
}

func (s *latencyState) add(took time.Duration) {
	if s.counts == nil {
		s.counts = make([]uint64, latencyBuckets)
	}
	nanoseconds := uint64(max(took, 0))
	s.counts[latencyBucket(nanoseconds)]++
	s.total++
	s.max = max(s.max, nanoseconds)
	var carry uint64
	s.sumLow, carry = bits.Add64(s.sumLow, nanoseconds, 0)
	s.sumHigh += carry
}

// append writes the number of non-empty buckets, then for each its distance from the previous
// one, and its count.
func (s *latencyState) append(b []byte) []byte {
	for _, v := range []uint64{s.max, s.sumHigh, s.sumLow} {
		b = binary.AppendUvarint(b, v)
	}
	used := 0
	for _, count := range s.counts {
		if count > 0 {
			used++
		}
	}
	b = binary.AppendUvarint(b, uint64(used))
	last := -1
	for bucket, count := range s.counts {
		if count > 0 {
			b = binary.AppendUvarint(b, uint64(bucket-last))
			b = binary.AppendUvarint(b, count)
			last = bucket
		}
	}
	return b
}

func (s *latencyState) decode(r *reader) {
	s.max, s.sumHigh, s.sumLow = r.uvarint(), r.uvarint(), r.uvarint()
	last := -1
	for range r.atMost(latencyBuckets) {
		distance, count := r.atMost(latencyBuckets), r.count()
		last += int(distance)
		if distance == 0 || count == 0 || last >= latencyBuckets {
			r.fail()
			return
		}
		if s.counts == nil {
			s.counts = make([]uint64, latencyBuckets)
		}
		s.counts[last] = count
		s.total += count
	}
	// A sum above total × max is impossible, and its mean could not be computed.
	high, low := bits.Mul64(s.total, s.max)
	if s.total > maxCount || s.max > 1<<63-1 ||
		s.sumHigh > high || (s.sumHigh == high && s.sumLow > low) {
		r.fail()
	}
}

// latencyResult is the JSON form of latency, in milliseconds. Percentiles are within 1 %.
type latencyResult struct {
	P50  json.Number `json:"p50_ms"`
	P90  json.Number `json:"p90_ms"`
	P99  json.Number `json:"p99_ms"`
	Max  json.Number `json:"max_ms"`
	Mean json.Number `json:"mean_ms"`
}

func (a *Set) parseLatency(_, argument string) (renderFunc, error) {
	if argument != "" {
		return nil, errors.New("latency takes no argument: want latency")
	}
	a.latency = true
	return func(s *totals) (json.RawMessage, error) { return s.latency.render() }, nil
}

func (s *latencyState) render() (json.RawMessage, error) {
	if s.total == 0 {
		return json.RawMessage("null"), nil
	}
	mean, _ := bits.Div64(s.sumHigh, s.sumLow, s.total)
	return json.Marshal(latencyResult{
		P50:  roundMilliseconds(s.percentile(50)),
		P90:  roundMilliseconds(s.percentile(90)),
		P99:  roundMilliseconds(s.percentile(99)),
		Max:  milliseconds(s.max),
		Mean: milliseconds(mean),
	})
}

// percentile returns the nearest-rank percentile of the durations, in nanoseconds.
func (s *latencyState) percentile(percent uint64) uint64 {
	rank := (s.total*percent + 99) / 100
	var seen uint64
	for bucket, count := range s.counts {
		if seen += count; seen >= rank {
			return min(latencyMiddle(bucket), s.max)
		}
	}
	return s.max
}

// milliseconds writes nanoseconds as milliseconds.
func milliseconds(nanoseconds uint64) json.Number {
	return json.Number(strconv.FormatFloat(float64(nanoseconds)/1e6, 'f', -1, 64))
}

// roundMilliseconds writes nanoseconds as milliseconds with four significant digits, about
// the precision of the buckets.
func roundMilliseconds(nanoseconds uint64) json.Number {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(float64(nanoseconds)/1e6, 'g', 4, 64), 64)
	return json.Number(strconv.FormatFloat(rounded, 'f', -1, 64))
}
