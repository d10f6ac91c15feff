package top

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Report is what happened on a server between two moments. Rates are averages per second over that
// time. The lists have what the server has metrics of; those of topics are of the partitions that it
// leads.
type Report struct {
	At time.Time `json:"at"`
	// Seconds is the time between the moments.
	Seconds float64  `json:"seconds"`
	Process Process  `json:"process"`
	Tenants []Tenant `json:"tenants"`
	Types   []Type   `json:"types"`
	// NonReady has the jobs that wait for a time, by what they wait for.
	NonReady map[string]int64 `json:"non_ready"`
	Rooms    []Room           `json:"rooms"`
	Topics   []Topic          `json:"topics"`
	Groups   []Group          `json:"groups"`
}

type Process struct {
	UptimeSeconds float64 `json:"uptime_seconds"`
	// CPU is the processor time used per second: 1 is one core.
	CPU         float64 `json:"cpu"`
	MemoryBytes int64   `json:"memory_bytes"`
	Connections int64   `json:"connections"`
	OpenFiles   int64   `json:"open_files"`
	MaxFiles    int64   `json:"max_files"`
}

type Tenant struct {
	Tenant             string  `json:"tenant"`
	SucceededPerSecond float64 `json:"succeeded_per_second"`
	FailedPerSecond    float64 `json:"failed_per_second"`
	// LimitedPerSecond counts the attempts that a rate limit put off.
	LimitedPerSecond float64 `json:"limited_per_second"`
	// Finished counts jobs since the server was started.
	Finished int64 `json:"finished"`
}

type Type struct {
	Type              string  `json:"type"`
	AttemptsPerSecond float64 `json:"attempts_per_second"`
	InFlight          int64   `json:"in_flight"`
	Ready             int64   `json:"ready"`
	// Waiting counts the jobs in line that are not ready yet.
	Waiting int64 `json:"waiting"`
}

type Room struct {
	Room              string  `json:"room"`
	EnteredPerSecond  float64 `json:"entered_per_second"`
	AdmittedPerSecond float64 `json:"admitted_per_second"`
	Inside            int64   `json:"inside"`
	Waiting           int64   `json:"waiting"`
}

type Topic struct {
	Topic            string  `json:"topic"`
	RecordsPerSecond float64 `json:"records_per_second"`
	Partitions       int     `json:"partitions"`
	Records          int64   `json:"records"`
	Bytes            int64   `json:"bytes"`
}

type Group struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	// CommittedPerSecond is how fast the group's offsets grow.
	CommittedPerSecond float64 `json:"committed_per_second"`
	Lag                int64   `json:"lag"`
}

// compare returns what happened between two samples of a server, in the order of names.
func compare(before, now *sample) Report {
	d := difference{before, now}
	return Report{
		At: now.at.UTC(), Seconds: d.seconds(), Process: d.process(), Tenants: d.tenants(), Types: d.types(),
		NonReady: d.nonReady(), Rooms: d.rooms(), Topics: d.topics(), Groups: d.groups(),
	}
}

type difference struct{ before, now *sample }

func (d *difference) seconds() float64 { return d.now.at.Sub(d.before.at).Seconds() }

// rates returns how fast the counters of a metric grow, by labels. A counter that is new was 0, and
// one that fell began again at 0 with its process.
func (d *difference) rates(metric string, labels ...string) map[key]float64 {
	before, rates := d.before.sum(metric, labels...), d.now.sum(metric, labels...)
	for k, value := range rates {
		grown := value - before[k]
		if grown < 0 {
			grown = value
		}
		rates[k] = grown / d.seconds()
	}
	return rates
}

func (d *difference) process() Process {
	return Process{
		UptimeSeconds: float64(d.now.at.UnixMilli())/1000 - d.now.one("process_start_time_seconds"),
		CPU:           d.rates("process_cpu_seconds_total")[key{}],
		MemoryBytes:   int64(d.now.one("process_resident_memory_bytes")),
		Connections:   int64(d.now.one("edge_connections_open")),
		OpenFiles:     int64(d.now.one("process_open_fds")),
		MaxFiles:      int64(d.now.one("process_max_fds")),
	}
}

func (d *difference) tenants() []Tenant {
	finished, done := d.now.sum("bulk_action_jobs_total", "tenant"), d.rates("bulk_action_jobs_total", "tenant", "outcome")
	limited := d.rates("bulk_action_rate_limit_denied_total", "tenant")
	return rows([]map[key]float64{finished, limited}, func(k key) Tenant {
		return Tenant{k[0], done[key{k[0], "succeeded"}], done[key{k[0], "failed"}], limited[k], int64(finished[k])}
	})
}

func (d *difference) types() []Type {
	attempts, flight := d.rates("bulk_action_attempts_total", "type"), d.now.sum("bulk_action_in_flight_size", "type")
	ready, waiting := d.now.sum("bulk_action_ready_queue_size", "type"), d.now.sum("bulk_action_waiting_size", "type")
	return rows([]map[key]float64{attempts, flight, ready, waiting}, func(k key) Type {
		return Type{k[0], attempts[k], int64(flight[k]), int64(ready[k]), int64(waiting[k])}
	})
}

func (d *difference) nonReady() map[string]int64 {
	jobs := map[string]int64{}
	for k, n := range d.now.sum("bulk_action_non_ready_queue_size", "reason") {
		jobs[k[0]] = int64(n)
	}
	return jobs
}

func (d *difference) rooms() []Room {
	entered, admitted := d.rates("room_entered_total", "room"), d.rates("room_admitted_total", "room")
	inside, waiting := d.now.sum("room_inside", "room"), d.now.sum("room_waiting", "room")
	return rows([]map[key]float64{waiting}, func(k key) Room {
		return Room{k[0], entered[k], admitted[k], int64(inside[k]), int64(waiting[k])}
	})
}

func (d *difference) topics() []Topic {
	written, bytes := d.rates("topic_partition_end_offset", "topic"), d.now.sum("topic_partition_bytes", "topic")
	starts, ends := d.now.sum("topic_partition_start_offset", "topic"), d.now.sum("topic_partition_end_offset", "topic")
	partitions := map[string]int{}
	for k := range d.now.sum("topic_partition_end_offset", "topic", "partition") {
		partitions[k[0]]++
	}
	return rows([]map[key]float64{ends}, func(k key) Topic {
		return Topic{k[0], written[k], partitions[k[0]], int64(ends[k] - starts[k]), int64(bytes[k])}
	})
}

// groups counts offsets only of partitions that had a committed one before: the first commit of a
// group is no speed. A reset backwards is none either.
func (d *difference) groups() []Group {
	committed, before := map[key]float64{}, d.before.offsets()
	for of, offset := range d.now.offsets() {
		if was, ok := before[of]; ok {
			committed[key{of[0], of[1]}] += max(0, offset-was) / d.seconds()
		}
	}
	lag := d.now.sum("topic_group_lag", "group", "topic")
	return rows([]map[key]float64{lag}, func(k key) Group { return Group{k[0], k[1], committed[k], int64(lag[k])} })
}

// rows returns a row for each key of any of the maps, in the order of the keys.
func rows[R any](of []map[key]float64, row func(k key) R) []R {
	keys := map[key]bool{}
	for _, m := range of {
		for k := range m {
			keys[k] = true
		}
	}
	made := []R{}
	for _, k := range slices.SortedFunc(maps.Keys(keys), func(a, b key) int { return slices.Compare(a[:], b[:]) }) {
		made = append(made, row(k))
	}
	return made
}

// The orders of the rows: by name, the highest rate first, or the longest queue first.
const (
	byName = "name"
	byRate = "rate"
	bySize = "size"
)

// ranked is a row that has a place in each order.
type ranked interface{ rank() (rate, size float64) }

func (t Tenant) rank() (rate, size float64) {
	return t.SucceededPerSecond + t.FailedPerSecond, float64(t.Finished)
}
func (t Type) rank() (rate, size float64)  { return t.AttemptsPerSecond, float64(t.Waiting) }
func (r Room) rank() (rate, size float64)  { return r.EnteredPerSecond, float64(r.Waiting) }
func (t Topic) rank() (rate, size float64) { return t.RecordsPerSecond, float64(t.Bytes) }
func (g Group) rank() (rate, size float64) { return g.CommittedPerSecond, float64(g.Lag) }

// arrange brings the rows, which are in the order of names, into another one.
func (r *Report) arrange(order string) {
	arrange(r.Tenants, order)
	arrange(r.Types, order)
	arrange(r.Rooms, order)
	arrange(r.Topics, order)
	arrange(r.Groups, order)
}

func arrange[R ranked](rows []R, order string) {
	if order == byName {
		return
	}
	slices.SortStableFunc(rows, func(a, b R) int {
		rateA, sizeA := a.rank()
		rateB, sizeB := b.rank()
		if order == bySize {
			return cmp.Compare(sizeB, sizeA)
		}
		return cmp.Compare(rateB, rateA)
	})
}
