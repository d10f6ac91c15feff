package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// sound returns a short history without violations: two producers, two partitions, an entry without
// records at offset 2 of partition 0, and one record in the log that was not acknowledged.
func sound() *History {
	log := []Record{
		{Partition: 0, Offset: 0, Producer: 1, Number: 0},
		{Partition: 0, Offset: 1, Producer: 2, Number: 0},
		{Partition: 1, Offset: 0, Producer: 1, Number: 0},
		{Partition: 0, Offset: 3, Producer: 1, Number: 1},
		{Partition: 0, Offset: 4, Producer: 1, Number: 2},
		{Partition: 0, Offset: 5, Producer: 2, Number: 1},
	}
	return &History{
		Partitions: 2, End: 100 * ms,
		Sends: []Send{
			{Producer: 1, Partition: 0, Number: 0, Answered: 1 * ms, Offset: 0},
			{Producer: 2, Partition: 0, Number: 0, Answered: 2 * ms, Offset: 1},
			{Producer: 1, Partition: 1, Number: 0, Answered: 3 * ms, Offset: 0},
			{Producer: 1, Partition: 0, Number: 1, Answered: 4 * ms, Offset: Unknown},
			{Producer: 1, Partition: 0, Number: 2, Answered: 50 * ms, Offset: 4},
			{Producer: 2, Partition: 0, Number: 1, Answered: 51 * ms, Offset: 5},
		},
		Log:       log,
		Reads:     map[string][]Record{"a": slices.Clone(log), "b": slices.Clone(log[3:])},
		Processed: append(slices.Clone(log), log[4]),
		Commits: []Commit{
			{Partition: 0, Offset: 2, Asked: 10 * ms, Answered: 12 * ms},
			{Partition: 0, Offset: 2, Asked: 13 * ms, Answered: 14 * ms, Seen: true},
			{Partition: 0, Offset: 6, Asked: 15 * ms, Answered: 20 * ms},
			{Partition: 0, Offset: 2, Asked: 16 * ms, Answered: 21 * ms, Seen: true}, // both were in flight
			{Partition: 0, Offset: 6, Asked: 22 * ms, Answered: 23 * ms, Seen: true},
			{Partition: 1, Offset: 1, Asked: 22 * ms, Answered: 23 * ms, Seen: true},
		},
	}
}

// harms are changes to the sound history, with the violations that each must cause.
var harms = []struct {
	name string
	harm func(*History)
	want []string // kinds
}{
	{"all went well", func(*History) {}, nil},
	{"an acknowledged record is not there", func(h *History) { h.Log = slices.Delete(h.Log, 2, 3) }, []string{"disagreed", "disagreed", "lost"}},
	{"one that was not acknowledged is not there", func(h *History) {
		h.Log = slices.Delete(h.Log, 3, 4)
		h.Reads, h.Processed = nil, h.Log
	}, nil},
	{"acknowledged at another offset", func(h *History) { h.Sends[4].Offset = 9 }, []string{"lost"}},
	{"a record is there twice", func(h *History) {
		h.Log = append(h.Log, Record{Partition: 0, Offset: 6, Producer: 1, Number: 2})
		h.Processed = append(h.Processed, h.Log[6])
	}, []string{"doubled"}},
	{"records are in another order", func(h *History) {
		h.Log[3].Number, h.Log[4].Number = 2, 1
		h.Sends[4].Offset, h.Reads, h.Processed = 3, nil, h.Log
	}, []string{"reordered"}},
	{"a record that nobody sent", func(h *History) {
		h.Log = append(h.Log, Record{Partition: 1, Offset: 1, Producer: 7, Number: 0})
		h.Processed = append(h.Processed, h.Log[6])
	}, []string{"foreign"}},
	{"a record's content is another", func(h *History) {
		h.Log[5].Changed = true
		h.Reads, h.Processed = nil, h.Log
	}, []string{"foreign"}},
	{"offsets go back", func(h *History) {
		h.Log[4], h.Log[5] = h.Log[5], h.Log[4]
	}, []string{"disagreed"}},
	{"a reader was given what is gone", func(h *History) { h.Reads["a"][4].Number = 8 }, []string{"disagreed"}},
	{"a reader was given what never came", func(h *History) {
		h.Reads["b"] = append(h.Reads["b"], Record{Partition: 0, Offset: 6, Producer: 2, Number: 2})
	}, []string{"disagreed"}},
	{"a reader passed over a record", func(h *History) { h.Reads["a"] = slices.Delete(h.Reads["a"], 1, 2) }, []string{"disagreed"}},
	{"a reader passed over several records", func(h *History) { h.Reads["a"] = slices.Delete(h.Reads["a"], 3, 5) }, []string{"disagreed"}},
	{"a reader was given a record twice", func(h *History) { h.Reads["b"] = append(h.Reads["b"], h.Log[5]) }, []string{"disagreed"}},
	{"a reader went back", func(h *History) { h.Reads["b"][0], h.Reads["b"][1] = h.Reads["b"][1], h.Reads["b"][0] }, []string{"disagreed"}},
	{"the group was not given a record", func(h *History) { h.Processed = h.Processed[1:] }, []string{"unprocessed"}},
	{"the group was given another record", func(h *History) { h.Processed[6].Number = 1 }, []string{"disagreed"}},
	{"a commit is forgotten", func(h *History) { h.Commits[4].Offset = 2 }, []string{"regressed"}},
	{"what was seen is forgotten", func(h *History) {
		h.Commits = []Commit{{Offset: 5, Answered: 2 * ms, Seen: true}, {Offset: 4, Asked: 3 * ms, Answered: 4 * ms, Seen: true}}
	}, []string{"regressed"}},
	{"a client complains", func(h *History) { h.Complaints = []Violation{{"lost", "told so"}} }, []string{"lost"}},
}

func TestCheckFindsWhatIsBroken(t *testing.T) {
	for _, test := range harms {
		t.Run(test.name, func(t *testing.T) {
			h := sound()
			test.harm(h)
			violations := Check(h)
			var kinds []string
			for _, v := range violations {
				kinds = append(kinds, v.Kind)
			}
			if !slices.Equal(kinds, test.want) {
				t.Errorf("violations %+v, want those of %q", violations, test.want)
			}
		})
	}
}

// drawHistory draws a history without violations.
func drawHistory(t *rapid.T) *History {
	h := &History{Partitions: rapid.IntRange(1, 3).Draw(t, "partitions"), Reads: map[string][]Record{}}
	numbers, ends := map[source]int64{}, map[int32]int64{}
	for i := range rapid.IntRange(1, 40).Draw(t, "records") {
		at := time.Duration(i) * ms
		from := source{rapid.IntRange(0, 2).Draw(t, "producer"), int32(rapid.IntRange(0, h.Partitions-1).Draw(t, "partition"))}
		s := Send{Producer: from.producer, Partition: from.partition, Number: numbers[from], Sent: at, Answered: at, Offset: Unknown}
		numbers[from]++
		fate := rapid.IntRange(0, 9).Draw(t, "fate") // 0: lost; 1: stored, not acknowledged
		if fate > 0 {
			ends[from.partition] += int64(rapid.IntRange(0, 1).Draw(t, "gap"))
			h.Log = append(h.Log, Record{from.partition, ends[from.partition], from.producer, s.Number, false})
			ends[from.partition]++
		}
		if fate > 1 {
			s.Offset = ends[from.partition] - 1
		}
		h.Sends = append(h.Sends, s)
	}
	h.End = time.Duration(len(h.Sends)) * ms
	for _, reader := range []string{"a", "b"} {
		from := rapid.IntRange(0, len(h.Log)).Draw(t, reader)
		h.Reads[reader] = slices.Clone(h.Log[from:])
	}
	h.Processed = slices.Clone(h.Log)
	return h
}

func TestCheckFindsNothingInSoundHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if violations := Check(drawHistory(t)); len(violations) > 0 {
			t.Fatalf("violations %+v", violations)
		}
	})
}

// Any harm to one acknowledged record is found, wherever the record is.
func TestCheckFindsOneHarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		var acknowledged []Send
		for _, s := range h.Sends {
			if s.Offset != Unknown {
				acknowledged = append(acknowledged, s)
			}
		}
		if len(acknowledged) == 0 {
			return
		}
		s := rapid.SampledFrom(acknowledged).Draw(t, "send")
		at := slices.IndexFunc(h.Log, func(r Record) bool { return r.Partition == s.Partition && r.Offset == s.Offset })
		h.Reads, h.Processed = nil, nil
		want := "lost"
		if rapid.Bool().Draw(t, "doubled") {
			again := h.Log[at]
			again.Offset += 1000
			h.Log, want = append(h.Log, again), "doubled"
		} else {
			h.Log = slices.Delete(h.Log, at, at+1)
		}
		if !slices.ContainsFunc(Check(h), func(v Violation) bool { return v.Kind == want }) {
			t.Fatalf("%s is not found: %+v", want, Check(h))
		}
	})
}

func TestInterruptions(t *testing.T) {
	h := &History{Partitions: 2, End: 1000 * ms, Faults: []Fault{{Kind: "kill", At: 100 * ms}, {Kind: "stop", At: 500 * ms}}}
	acknowledge := func(partition int32, times ...int) {
		for _, at := range times {
			h.Sends = append(h.Sends, Send{Partition: partition, Answered: time.Duration(at) * ms})
		}
	}
	acknowledge(0, 10, 50, 95, 300, 310, 600, 990)
	acknowledge(1, 10, 150, 200, 499, 501, 700, 998)
	h.Sends = append(h.Sends, Send{Partition: 0, Answered: 320 * ms, Offset: Unknown})
	got := Interruptions(h)
	want := []Interruption{
		{Fault: h.Faults[0], Partition: 299 * ms, Service: 189 * ms}, // 200–499, 310–499
		{Fault: h.Faults[1], Partition: 390 * ms, Service: 290 * ms}, // 600–990, 700–990
	}
	if !slices.Equal(got, want) {
		t.Errorf("interruptions %+v, want %+v", got, want)
	}
	if got := longestGap(nil, 5*ms, 9*ms); got != 4*ms {
		t.Errorf("without any acknowledgement the gap is %v, want all of the span", got)
	}
	if got := longestGap([]time.Duration{1 * ms, 2 * ms}, 5*ms, 9*ms); got != 7*ms {
		t.Errorf("after the last acknowledgement the gap is %v, want 7ms", got)
	}
	if got := longestGap([]time.Duration{1 * ms, 20 * ms}, 5*ms, 9*ms); got != 8*ms {
		t.Errorf("a gap over the span is %v, want 8ms, to its end", got)
	}
}

func TestReport(t *testing.T) {
	h := sound()
	h.Faults = []Fault{{Kind: "kill", Node: 2, At: 5 * ms, Healed: 30 * ms, Recovered: 40 * ms}}
	h.Sends[0].Offset = 77
	r := NewReport(h)
	if r.Sent != 6 || r.Acknowledged != 5 || r.Failed != 1 || r.Again != 1 || r.Counts["lost"] != 1 || r.Kinds["kill"].Count != 1 {
		t.Errorf("report %+v", r)
	}
	var text, encoded bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 records sent, 5 acknowledged, 1 given up", "kill", "25ms", "VIOLATION lost"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, &text)
		}
	}
	if err := r.WriteJSON(&encoded); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(encoded.Bytes(), &back); err != nil || back.Faults[0] != r.Faults[0] || back.Counts["lost"] != 1 {
		t.Errorf("JSON %s: %v", &encoded, err)
	}
}

func TestRecorder(t *testing.T) {
	r := NewRecorder(1)
	healed, recovered := r.Began("kill", 3)
	r.Sent(Send{Offset: 4})
	r.Sent(Send{Number: 1, Offset: Unknown})
	r.Read("a", Record{Offset: 4})
	r.Processed(Record{Offset: 4})
	r.Committed(Commit{Offset: 5})
	r.Complain("lost", "record %d", 7)
	healed()
	recovered()
	r.Stop()
	if got := r.Acknowledged(); got != 1 {
		t.Errorf("%d acknowledged, want 1", got)
	}
	h := r.History([]Record{{Offset: 4}})
	f := h.Faults[0]
	if f.Kind != "kill" || f.Node != 3 || f.At <= 0 || f.Healed < f.At || f.Recovered < f.Healed || h.End < f.Recovered {
		t.Errorf("fault %+v, end %v", f, h.End)
	}
	if len(h.Sends) != 2 || len(h.Reads["a"]) != 1 || len(h.Processed) != 1 || len(h.Commits) != 1 || h.Complaints[0].Detail != "record 7" {
		t.Errorf("history %+v", h)
	}
}
