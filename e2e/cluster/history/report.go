package history

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report summarizes a history.
type Report struct {
	Seconds      float64 `json:"seconds"`
	Sent         int     `json:"sent"`
	Acknowledged int     `json:"acknowledged"`
	// Failed counts the records that the client gave up.
	Failed int `json:"failed"`
	Read   int `json:"read"`
	// Again counts the repeated deliveries to the group.
	Processed  int               `json:"processed"`
	Again      int               `json:"again"`
	Commits    int               `json:"commits"`
	Faults     []FaultReport     `json:"faults"`
	Kinds      map[string]Spread `json:"kinds"`
	Violations []Violation       `json:"violations"`
	// Counts are the violations by kind; Violations holds the first of each.
	Counts map[string]int `json:"violation_counts"`
}

// FaultReport is one fault and the interruption around it, in milliseconds.
type FaultReport struct {
	Kind           string `json:"kind"`
	Node           int    `json:"node"`
	AtMS           int64  `json:"at_ms"`
	HealedMS       int64  `json:"healed_ms"`
	RecoveredMS    int64  `json:"recovered_ms"`
	InterruptionMS int64  `json:"interruption_ms"`
	ServiceMS      int64  `json:"service_interruption_ms"`
}

// Spread are the interruptions of one kind of fault, in milliseconds.
type Spread struct {
	Count    int   `json:"count"`
	MedianMS int64 `json:"median_ms"`
	MaxMS    int64 `json:"max_ms"`
}

// mostViolations bounds how many violations of a kind are listed.
const mostViolations = 10

// NewReport checks a history.
func NewReport(h *History) *Report {
	r := &Report{
		Seconds: h.End.Seconds(), Sent: len(h.Sends), Processed: len(h.Processed), Commits: len(h.Commits),
		Kinds: map[string]Spread{}, Counts: map[string]int{}, Violations: []Violation{}, Faults: []FaultReport{},
	}
	for _, s := range h.Sends {
		if s.Offset == Unknown {
			r.Failed++
		} else {
			r.Acknowledged++
		}
	}
	for _, reads := range h.Reads {
		r.Read += len(reads)
	}
	given := map[place]bool{}
	for _, record := range h.Processed {
		if at := (place{record.Partition, record.Offset}); given[at] {
			r.Again++
		} else {
			given[at] = true
		}
	}
	for _, v := range Check(h) {
		if r.Counts[v.Kind]++; r.Counts[v.Kind] <= mostViolations {
			r.Violations = append(r.Violations, v)
		}
	}
	r.addFaults(Interruptions(h))
	return r
}

func (r *Report) addFaults(interruptions []Interruption) {
	kinds := map[string][]int64{}
	for _, i := range interruptions {
		f := FaultReport{
			Kind: i.Kind, Node: i.Node, AtMS: i.At.Milliseconds(), HealedMS: i.Healed.Milliseconds(), RecoveredMS: i.Recovered.Milliseconds(),
			InterruptionMS: i.Partition.Milliseconds(), ServiceMS: i.Service.Milliseconds(),
		}
		r.Faults = append(r.Faults, f)
		kinds[i.Kind] = append(kinds[i.Kind], f.InterruptionMS)
	}
	for kind, all := range kinds {
		slices.Sort(all)
		r.Kinds[kind] = Spread{Count: len(all), MedianMS: all[len(all)/2], MaxMS: all[len(all)-1]}
	}
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := &strings.Builder{}
	fmt.Fprintf(t, "%.0f s: %d records sent, %d acknowledged, %d given up; readers were given %d, the group %d (%d of them again); %d looks at commits\n",
		r.Seconds, r.Sent, r.Acknowledged, r.Failed, r.Read, r.Processed, r.Again, r.Commits)
	fmt.Fprintln(t, "at\tfault\tnode\thealed after\twhole after\tnothing acknowledged: a partition\tall")
	for _, f := range r.Faults {
		fmt.Fprintf(t, "%v\t%s\t%d\t%s\t%s\t%v\t%v\n", milliseconds(f.AtMS), f.Kind, f.Node, after(f.AtMS, f.HealedMS), after(f.AtMS, f.RecoveredMS),
			milliseconds(f.InterruptionMS), milliseconds(f.ServiceMS))
	}
	fmt.Fprintln(t, "fault\ttimes\tmedian\tmost")
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		s := r.Kinds[kind]
		fmt.Fprintf(t, "%s\t%d\t%v\t%v\n", kind, s.Count, milliseconds(s.MedianMS), milliseconds(s.MaxMS))
	}
	if len(r.Violations) == 0 {
		fmt.Fprintln(t, "nothing lost, doubled or reordered; all readers agree; no commit went back")
	}
	for _, v := range r.Violations {
		fmt.Fprintf(t, "VIOLATION %s (1 of %d): %s\n", v.Kind, r.Counts[v.Kind], v.Detail)
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(columns, t.String()); err != nil {
		return err
	}
	return columns.Flush()
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func after(from, to int64) string {
	if to == 0 {
		return "-"
	}
	return milliseconds(to - from).String()
}
