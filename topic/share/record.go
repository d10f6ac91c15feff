package share

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Prefix begins the keys of windows in the metadata.
const Prefix = "shares/"

// TopicPrefix begins the keys of all windows of a topic.
func TopicPrefix(id topic.ID) string { return Prefix + id.String() + "/" }

// Key returns the key of a group's window of a partition.
func Key(id topic.ID, partition int32, group string) string {
	return TopicPrefix(id) + strconv.Itoa(int(partition)) + "/" + group
}

// SplitKey is the inverse of Key. The topic is its id as text.
func SplitKey(key string) (of string, partition int32, group string) {
	of, rest, _ := strings.Cut(strings.TrimPrefix(key, Prefix), "/")
	number, group, _ := strings.Cut(rest, "/")
	n, _ := strconv.ParseInt(number, 10, 32)
	return of, int32(n), group
}

// The versions of a stored window. The second one is written where there are records that wait or are dead.
const (
	plainFormat  = 1
	recordFormat = 2
)

// Stored marks of runs in place of a count.
const (
	markSettled   = -1
	markAbsent    = -2
	markRejected  = -3
	markExhausted = -4
)

// record is a stored window. Locks are not stored: records that are acquired are available again when
// the window is read, with their counts, or after their backoff.
type record struct {
	Format int `json:"format"`
	// Epoch is the leader epoch of the broker that wrote it.
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
	// Runs are first offset, last offset, and the number of deliveries or a mark. A fourth number is when the
	// records are available, in milliseconds since 1970, or how often dead ones were delivered.
	Runs [][]int64 `json:"runs,omitempty"`
}

// Encode returns the window as it is stored by the leader of an epoch. If it is read again, records that are
// acquired wait for their backoff from now on.
func (w *Window) Encode(now time.Time, epoch int32) ([]byte, error) {
	r := record{Format: plainFormat, Epoch: epoch, Start: w.start}
	for i := range w.runs {
		tail := w.runs[i].stored(now, &w.limits)
		if len(tail) > 1 {
			r.Format = recordFormat
		}
		if n := len(r.Runs); n > 0 && slices.Equal(r.Runs[n-1][2:], tail) {
			r.Runs[n-1][1] = w.runs[i].last
			continue
		}
		r.Runs = append(r.Runs, append([]int64{w.runs[i].first, w.runs[i].last}, tail...))
	}
	return json.Marshal(r)
}

// stored returns a run as it is stored, from its third number on.
func (r *run) stored(now time.Time, limits *Limits) []int64 {
	until := r.until
	switch r.state {
	case settled:
		return []int64{markSettled}
	case absent:
		return []int64{markAbsent}
	case rejected:
		return []int64{markRejected, int64(r.count)}
	case exhausted:
		return []int64{markExhausted, int64(r.count)}
	case acquired:
		until = time.Time{}
		if wait := limits.backoff(r.count); wait > 0 && r.count < limits.Deliveries {
			until = now.Add(wait)
		}
	}
	if until.IsZero() {
		return []int64{int64(r.count)}
	}
	return []int64{int64(r.count), until.UnixMilli()}
}

// Decode returns a stored window, and the leader epoch in which it was written.
func Decode(value []byte, limits Limits) (w *Window, epoch int32, err error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, 0, err
	}
	if r.Format < plainFormat || r.Format > recordFormat {
		return nil, 0, fmt.Errorf("format %d; this version reads %d to %d: upgrade this node", r.Format, plainFormat, recordFormat)
	}
	w = New(r.Start, limits)
	for _, stored := range r.Runs {
		if n := len(stored); n != 3 && n != 4 || stored[0] != w.End() || stored[1] < stored[0] || stored[2] < markExhausted {
			return nil, 0, fmt.Errorf("run %v after offset %d", stored, w.End()-1)
		}
		w.add(w.restored(stored[0], stored[1], stored[2], append(stored, 0)[3]))
	}
	w.normalize()
	return w, r.Epoch, nil
}

// restored returns a stored run.
func (w *Window) restored(first, last, mark, more int64) run {
	r := run{first: first, last: last, count: int16(mark)}
	switch {
	case mark == markAbsent:
		return run{first: first, last: last, state: absent}
	case mark == markSettled:
		return run{first: first, last: last, state: settled}
	case mark == markRejected:
		r.count = int16(more)
		w.fail(&r, rejected)
	case mark == markExhausted:
		r.count = int16(more)
		w.fail(&r, exhausted)
	case mark >= int64(w.limits.Deliveries):
		w.fail(&r, exhausted)
	case more > 0:
		r.state, r.until = waiting, time.UnixMilli(more)
	}
	return r
}
