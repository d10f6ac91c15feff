package web

import (
	"cmp"
	"slices"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic/broker"
)

// The bounds of a tail: partitions that are read, and the records of each.
const (
	tailPartitions = 16
	leastTail      = 5
)

// tailRow is one of the newest records of a topic.
type tailRow struct {
	recordRow
	Partition int32
	To        string
}

type tailPage struct {
	Sub     []link
	To      string
	Topic   string
	Records []tailRow
	// Each is how many records of a partition are shown at most; Others counts the partitions that are not shown.
	Each, Others int
}

// tail shows the newest records of a topic, those of all partitions that this node leads together, the newest first. The
// page is loaded again all the time.
func (d *Dashboard) tail(r *request) (string, any, error) {
	t, err := d.readable(r)
	if err != nil {
		return "", nil, err
	}
	page := tailPage{Sub: topicSub(r), Topic: t.Name(), To: topicPath(t.Name())}
	all := t.Partitions()
	here := slices.DeleteFunc(slices.Clone(all), func(p *broker.Partition) bool { return p.Leader() != d.options.Topics.Node() })
	here = here[:min(len(here), tailPartitions)]
	page.Others, page.Each = len(all)-len(here), max(leastTail, pageSize/max(len(here), 1))
	for _, p := range here {
		ends := p.Ends()
		rows, _, err := d.read(r, t, p.Number(), max(ends.Start, ends.HighWatermark-int64(page.Each)), filter{})
		if err != nil {
			return "", nil, err
		}
		for _, row := range rows {
			page.Records = append(page.Records, tailRow{row, p.Number(), recordsPath(t.Name(), p.Number())})
		}
	}
	slices.SortStableFunc(page.Records, func(x, y tailRow) int {
		return cmp.Or(y.at.Compare(x.at), cmp.Compare(y.Offset, x.Offset))
	})
	page.Records = page.Records[:min(len(page.Records), pageSize)]
	return r.t("tail.title", t.Name()), page, nil
}

// readable returns the topic of a request, if the sender may see its records.
func (d *Dashboard) readable(r *request) (*broker.Topic, error) {
	if err := need(r.Context(), access.Consume); err != nil {
		return nil, err
	}
	t, err := d.findTopic(r)
	if err == nil && !access.From(r.Context()).Topic(t.Name()) {
		err = need(r.Context(), access.ManageAccess) // it is the audit trail
	}
	return t, err
}
