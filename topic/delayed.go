package topic

import (
	"cmp"
	"slices"
	"time"
)

// DelayedInfo is a record that waits until it is due.
type DelayedInfo struct {
	// ID names the record, so that it can be canceled.
	ID string
	// Partition is where it will appear, DeliverAt when.
	Partition int32
	DeliverAt time.Time
}

// list returns records that wait, at most limit, those first that are due first.
func (d *Delays) list(partition int32, limit int) []DelayedInfo {
	d.mu.Lock()
	infos := make([]DelayedInfo, 0, len(d.state.items))
	for id, item := range d.state.items {
		infos = append(infos, DelayedInfo{ID: id, Partition: partition, DeliverAt: time.UnixMilli(item.due)})
	}
	d.mu.Unlock()
	return firstDue(infos, limit)
}

func firstDue(infos []DelayedInfo, limit int) []DelayedInfo {
	slices.SortFunc(infos, func(a, b DelayedInfo) int {
		return cmp.Or(a.DeliverAt.Compare(b.DeliverAt), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.ID, b.ID))
	})
	return infos[:min(len(infos), max(limit, 0))]
}
