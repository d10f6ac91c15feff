package web

import (
	"context"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

type topicRow struct {
	Name, To, Of, Rate string
	// Groups counts those that read the topic, and Lag is the greatest of theirs; "–" if there are none.
	Groups                        int64
	Lag                           string
	Partitions, Records, Bytes    int64
	Leaderless, Elsewhere, Delays bool
}

type topicList struct {
	Off    bool
	Sub    []link
	Find   string
	Topics []topicRow
	Pages  pager
}

func (d *Dashboard) showTopics() {
	d.show(Prefix+"topics", "topics", d.topics)
	d.show(Prefix+"topics/topic", "topic", d.topic)
	d.show(Prefix+"topics/records", "records", d.records)
	d.show(Prefix+"topics/tail", "tail", d.tail)
	d.show(Prefix+"topics/delayed", "delayed", d.delayed)
	d.show(Prefix+"topics/groups", "groups", d.groups)
	d.show(Prefix+"topics/group", "group", d.consumerGroup)
	d.show(Prefix+"topics/reset", "reset", d.reset)
}

func topicSub(r *request) []link {
	return r.sub([2]string{"nav.topics", "topics"}, [2]string{"topic.groups", "topics/groups"})
}

func (d *Dashboard) topics(r *request) (string, any, error) {
	list := topicList{Off: d.options.Topics == nil, Find: r.get("find"), Sub: topicSub(r)}
	if list.Off {
		return r.t("nav.topics"), list, nil
	}
	topics := map[string]*broker.Topic{}
	var names []string
	for _, t := range d.options.Topics.Topics() {
		if strings.Contains(t.Name(), list.Find) {
			names, topics[t.Name()] = append(names, t.Name()), t
		}
	}
	names, next := r.cut(names)
	for _, name := range names {
		list.Topics = append(list.Topics, d.topicRow(r.Context(), topics[name]))
	}
	list.Pages = r.page(next)
	return r.t("nav.topics"), list, nil
}

// topicRow sums the partitions that this node leads.
func (d *Dashboard) topicRow(ctx context.Context, t *broker.Topic) topicRow {
	now, before := d.history.minute()
	most := 0.0
	row := topicRow{Name: t.Name(), To: topicPath(t.Name()), Delays: t.Settings().Delays, Rate: "–", Groups: int64(len(now.lags[t.Name()])), Lag: "–"}
	for _, lag := range now.lags[t.Name()] {
		most = max(most, lag)
		row.Lag = count(most)
	}
	if source := t.Source(); source != nil {
		row.Of = source.Name()
	} else {
		row.Rate = decimal(rate(now, before, of("topic_partition_end_offset", t.Name())))
	}
	for _, p := range t.Partitions() {
		row.Partitions++
		switch leader := p.Leader(); {
		case leader < 0:
			row.Leaderless = true
		case leader != d.options.Topics.Node():
			row.Elsewhere = true
		default:
			ends := p.Ends()
			row.Records += ends.HighWatermark - ends.Start
			bytes, _ := p.Bytes(ctx) // it may cease to lead
			row.Bytes += bytes
		}
	}
	return row
}

type partitionRow struct {
	Number              int32
	Leader              string
	Here                bool
	To                  string
	Replicas            string
	Behind              bool
	Start, End, Records int64
	Bytes               string
}

type settingRow struct {
	Name, Value string
	Own         bool
}

type topicPage struct {
	Sub []link
	Row topicRow
	// Tail leads to the newest records, and Delayed to those that are not due, of a topic that delays some; "" if the sender may not see them.
	Tail       string
	Delayed    string
	Where      string
	Partitions []partitionRow
	Pages      pager
	Settings   []settingRow
}

func (d *Dashboard) topic(r *request) (string, any, error) {
	t, err := d.findTopic(r)
	if err != nil {
		return "", nil, err
	}
	settings, own := t.Settings(), t.Own()
	page := topicPage{Sub: topicSub(r), Row: d.topicRow(r.Context(), t), Where: settings.ViewWhere}
	if may(r.Context(), access.Consume) && access.From(r.Context()).Topic(t.Name()) {
		page.Tail = named("topics/tail", t.Name())
		if page.Row.Delays {
			page.Delayed = named("topics/delayed", t.Name())
		}
	}
	from, _ := strconv.Atoi(r.get("after")) // else from the first
	partitions := t.Partitions()
	next := ""
	partitions = partitions[min(max(from, 0), len(partitions)):]
	if len(partitions) > pageSize {
		next = strconv.Itoa(max(from, 0) + pageSize)
		partitions = partitions[:pageSize]
	}
	d.options.Topics.AwaitReplicas(r.Context(), partitions)
	for _, p := range partitions {
		page.Partitions = append(page.Partitions, d.partitionRow(r, t, p))
	}
	page.Pages = r.page(next)
	for _, s := range topic.SettingsTable() {
		_, set := own[s.Name]
		page.Settings = append(page.Settings, settingRow{s.Name, s.Value(settings), set})
	}
	return t.Name(), page, nil
}

func (d *Dashboard) findTopic(r *request) (*broker.Topic, error) {
	if d.options.Topics == nil {
		return nil, topic.ErrNoTopic
	}
	return d.options.Topics.Topic(r.get("name"))
}

func (d *Dashboard) partitionRow(r *request, t *broker.Topic, p *broker.Partition) partitionRow {
	row := partitionRow{Number: p.Number(), Leader: "–", Replicas: nodes(p.Replicas()), To: recordsPath(t.Name(), p.Number()), Bytes: "–"}
	row.Behind = len(p.InSync()) < len(p.Target())
	leader := p.Leader()
	if leader >= 0 {
		row.Leader = strconv.Itoa(int(leader))
	}
	if row.Here = leader == d.options.Topics.Node(); row.Here {
		ends := p.Ends()
		row.Start, row.End, row.Records = ends.Start, ends.HighWatermark, ends.HighWatermark-ends.Start
		if bytes, err := p.Bytes(r.Context()); err == nil {
			row.Bytes = size(bytes)
		}
	} else {
		row.To = d.elsewhere(leader) + row.To
	}
	return row
}

// elsewhere returns the beginning of links to the dashboard of another node; "" if it is not known.
func (d *Dashboard) elsewhere(id int32) string {
	for _, n := range d.options.Topics.Nodes() {
		if n.ID == id && id != d.options.Topics.Node() {
			return strings.TrimSuffix(n.HTTP, "/")
		}
	}
	return ""
}

func nodes(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(int(id)))
	}
	return b.String()
}
