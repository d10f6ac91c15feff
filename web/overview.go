package web

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sluice-project/sluice/room"
)

const (
	// maxAttention bounds the lines of what needs attention, of each kind.
	maxAttention = 5
	// watchedRooms is how many rooms are looked at for it.
	watchedRooms = 200
	// lowDisk is the part of the disk that is free when it is low.
	lowDisk = 0.1
)

// overview is all parts on one page.
type overview struct {
	Attention []attention
	Heads     []string
	Lanes     []lane
	Charts    []chart
}

// attention is something that an operator should look at.
type attention struct {
	Class, Text, Detail, To string
}

// lane is the way through one part.
type lane struct {
	Name, To string
	Off      bool
	Steps    []step
}

// step is one step of a way: its name, its figure, and what that counts.
type step struct{ Label, Value, Note string }

// steps are the keys of the steps: the same for all parts.
var steps = []string{"flow.wait", "flow.pass", "flow.serve", "flow.done"}

func (d *Dashboard) showOverview() {
	d.show(Prefix+"{$}", "overview", func(r *request) (string, any, error) {
		now, before := d.history.minute()
		o := overview{Attention: d.attention(r, now)}
		for _, key := range steps {
			o.Heads = append(o.Heads, r.t(key))
		}
		per := func(name string) float64 { return rate(now, before, total(name)) }
		o.Lanes = []lane{
			d.roomLane(r, now, per), d.bulkLane(r, now, per), d.topicLane(r, now, per),
		}
		for i := range o.Lanes {
			for j := range o.Lanes[i].Steps {
				o.Lanes[i].Steps[j].Label = o.Heads[j]
			}
		}
		o.Charts = d.charts(r.uiLanguage)
		return r.t("nav.overview"), o, nil
	})
}

func (d *Dashboard) roomLane(r *request, now *snapshot, per func(string) float64) lane {
	return lane{Name: r.t("nav.rooms"), To: Prefix + "rooms", Off: d.options.Rooms == nil, Steps: []step{
		{Value: count(now.total["room_waiting"]), Note: r.t("unit.visitors")},
		{Value: decimal(60 * per("room_admitted_total")), Note: r.t("unit.aminute")},
		{Value: count(now.total["room_inside"]), Note: r.t("flow.inside")},
		{Value: decimal(60 * per("room_expired_total")), Note: r.t("flow.expired")},
	}}
}

func (d *Dashboard) bulkLane(r *request, now *snapshot, per func(string) float64) lane {
	done, failed := per("bulk_action_jobs_total"), per(failedJobs)
	note := r.t("unit.asecond")
	if failed > 0 {
		note = r.t("flow.failed", decimal(100*failed/done))
	}
	return lane{Name: r.t("nav.bulk"), To: Prefix + "bulk", Off: d.options.Bulk == nil, Steps: []step{
		{Value: count(now.total["bulk_action_waiting_size"] + now.total["bulk_action_non_ready_queue_size"]), Note: r.t("unit.jobs")},
		{Value: decimal(per("bulk_action_rate_limit_allowed_total")), Note: r.t("unit.asecond")},
		{Value: count(now.total["bulk_action_in_flight_size"]), Note: r.t("flow.inflight")},
		{Value: decimal(done), Note: note},
	}}
}

func (d *Dashboard) topicLane(r *request, now *snapshot, per func(string) float64) lane {
	return lane{Name: r.t("nav.topics"), To: Prefix + "topics", Off: d.options.Topics == nil, Steps: []step{
		{Value: count(now.total["topic_group_lag"]), Note: r.t("flow.lag")},
		{Value: decimal(per("topic_partition_end_offset")), Note: r.t("flow.records")},
		{Value: size(int64(now.total["topic_partition_bytes"])), Note: r.t("flow.stored")},
		{Value: size(int64(per("topic_kafka_sent_bytes_total"))), Note: r.t("flow.read")},
	}}
}

func count(f float64) string { return number(int64(f)) }

// charts are those of the parts that are on.
func (d *Dashboard) charts(l *uiLanguage) []chart {
	var charts []chart
	draw := func(title, unit string, format func(float64) string, lines ...line) {
		charts = append(charts, d.history.draw(l, title, unit, format, lines...))
	}
	if d.options.Rooms != nil {
		draw("chart.visitors", "unit.visitors", count, line{"flow.wait", "room_waiting", false}, line{"flow.inside", "room_inside", false})
		draw("chart.admitted", "unit.asecond", decimal, line{"flow.pass", "room_admitted_total", true})
	}
	if d.options.Bulk != nil {
		draw("chart.jobs", "unit.asecond", decimal, line{"flow.done", "bulk_action_jobs_total", true}, line{"chart.failed", failedJobs, true})
		draw("chart.waiting", "unit.jobs", count, line{"flow.wait", "bulk_action_waiting_size", false}, line{"flow.inflight", "bulk_action_in_flight_size", false})
	}
	if d.options.Topics != nil {
		draw("chart.records", "unit.asecond", decimal, line{"flow.pass", "topic_partition_end_offset", true})
		draw("chart.lag", "unit.records", count, line{"flow.lag", "topic_group_lag", false})
	}
	return charts
}

// attention returns what needs an operator, the worst first.
func (d *Dashboard) attention(r *request, now *snapshot) []attention {
	var found []attention
	failing := d.options.Failing(r.Context())
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		found = append(found, attention{"bad", r.t("attention.check", name), failing[name], ""})
	}
	if d.options.Warnings != nil {
		warnings := d.options.Warnings(r.Context())
		for _, name := range slices.Sorted(maps.Keys(warnings)) {
			found = append(found, attention{"warn", r.t("attention.warning", name), warnings[name], ""})
		}
	}
	down := now.labeled["bulk_action_target_down"]
	for _, target := range first(down, func(target string) bool { return down[target] > 0 }) {
		found = append(found, attention{"bad", r.t("attention.target", target), "", Prefix + "bulk/targets"})
	}
	found = append(found, d.ofTopics(r, now)...)
	found = append(found, d.ofRooms(r.Context(), r.uiLanguage)...)
	slices.SortStableFunc(found, func(a, b attention) int { return cmp.Compare(a.Class, b.Class) }) // bad, warn
	return found
}

// first returns up to maxAttention of the names that need attention.
func first(values map[string]float64, needs func(name string) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(names) < maxAttention && needs(name) {
			names = append(names, name)
		}
	}
	return names
}

func (d *Dashboard) ofTopics(r *request, now *snapshot) (found []attention) {
	if d.options.Topics == nil {
		return nil
	}
	if n := now.total["topic_partitions_offline"]; n > 0 {
		found = append(found, attention{"bad", r.t("attention.offline", count(n)), "", Prefix + "cluster"})
	}
	if n := now.total["topic_partitions_under_replicated"]; n > 0 {
		found = append(found, attention{"warn", r.t("attention.behind", count(n)), "", Prefix + "cluster"})
	}
	for _, node := range d.options.Topics.Nodes() {
		if !node.Alive {
			found = append(found, attention{"bad", r.t("attention.node", node.ID), "", Prefix + "cluster"})
		}
	}
	if whole, free, err := d.options.Topics.Volume(); err == nil && float64(free) < lowDisk*float64(whole) {
		found = append(found, attention{"bad", r.t("attention.disk", size(free), size(whole)), "", ""})
	}
	for _, name := range d.history.growing("topic_group_lag") {
		lag := now.labeled["topic_group_lag"][name]
		found = append(found, attention{"warn", r.t("attention.lag", name, count(lag)), "", groupPath(name)})
	}
	return found
}

func (d *Dashboard) ofRooms(ctx context.Context, l *uiLanguage) (found []attention) {
	if d.options.Rooms == nil {
		return nil
	}
	views, _, err := d.options.Rooms.Rooms(ctx, "", watchedRooms)
	if err != nil {
		return nil // a failed check says so
	}
	for _, v := range views {
		switch s := v.Room.Settings.WithDefaults(); {
		case len(found) == maxAttention:
			return found
		case v.Status.Waiting >= s.MaxWaiting:
			found = append(found, attention{"bad", l.t("attention.full", v.Room.Name, number(v.Status.Waiting)), "", roomPath(v.Room.Name)})
		case v.Phase == room.Paused:
			found = append(found, attention{"warn", l.t("attention.paused", v.Room.Name, number(v.Status.Waiting)), "", roomPath(v.Room.Name)})
		}
	}
	return found
}
