package web

// delayedRow is a record that waits until it is due.
type delayedRow struct {
	ID        string
	Partition int32
	// In is how long it waits, At the time.
	In, At string
}

type delayedPage struct {
	Sub       []link
	Topic, To string
	Records   []delayedRow
	// More reports whether further ones wait.
	More bool
}

// delayed shows the records of a topic that are due next, of all partitions, on whatever node their leader is.
func (d *Dashboard) delayed(r *request) (string, any, error) {
	t, err := d.readable(r)
	if err != nil {
		return "", nil, err
	}
	waiting, err := d.options.Topics.Delayed(r.Context(), t.Name(), pageSize+1)
	if err != nil {
		return "", nil, err
	}
	page := delayedPage{Sub: topicSub(r), Topic: t.Name(), To: topicPath(t.Name()), More: len(waiting) > pageSize}
	for _, w := range waiting[:min(len(waiting), pageSize)] {
		page.Records = append(page.Records, delayedRow{w.ID, w.Partition, r.ago(w.DeliverAt), clock(w.DeliverAt)})
	}
	return r.t("delayed.title", t.Name()), page, nil
}
