package share

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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

// recordFormat is the version of a stored window.
const recordFormat = 1

// Stored marks of runs that have no count.
const (
	markSettled = -1
	markAbsent  = -2
)

// record is a stored window. Locks are not stored: records that are acquired are available again when
// the window is read, with their counts.
type record struct {
	Format int `json:"format"`
	// Epoch is the leader epoch of the broker that wrote it.
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
	// Runs are first offset, last offset, and the number of deliveries or a mark.
	Runs [][3]int64 `json:"runs,omitempty"`
}

// Encode returns the window as it is stored by the leader of an epoch.
func (w *Window) Encode(epoch int32) ([]byte, error) {
	r := record{Format: recordFormat, Epoch: epoch, Start: w.start}
	for i := range w.runs {
		mark := int64(w.runs[i].count)
		switch w.runs[i].state {
		case settled:
			mark = markSettled
		case absent:
			mark = markAbsent
		}
		if n := len(r.Runs); n > 0 && r.Runs[n-1][2] == mark {
			r.Runs[n-1][1] = w.runs[i].last
			continue
		}
		r.Runs = append(r.Runs, [3]int64{w.runs[i].first, w.runs[i].last, mark})
	}
	return json.Marshal(r)
}

// Decode returns a stored window, and the leader epoch in which it was written.
func Decode(value []byte, limits Limits) (w *Window, epoch int32, err error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, 0, err
	}
	if r.Format != recordFormat {
		return nil, 0, fmt.Errorf("format %d; this version reads %d", r.Format, recordFormat)
	}
	w = New(r.Start, limits)
	for _, stored := range r.Runs {
		next := run{first: stored[0], last: stored[1]}
		if next.first != w.End() || next.last < next.first || stored[2] < markAbsent {
			return nil, 0, fmt.Errorf("run %v after offset %d", stored, w.End()-1)
		}
		switch count := stored[2]; {
		case count == markAbsent:
			next.state = absent
		case count == markSettled || count >= int64(limits.Deliveries):
			next.state = settled
		default:
			next.count = int16(count)
		}
		w.add(next)
	}
	w.normalize()
	return w, r.Epoch, nil
}
