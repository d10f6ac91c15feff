package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// flowRun observes one type as the fetcher does.
type flowRun struct {
	flow
	now   time.Time
	state bulk.TypeState
	most  int64
}

func newFlowRun(most int64) *flowRun {
	r := &flowRun{now: time.Unix(1_700_000_000, 0), most: most}
	r.look(0)
	return r
}

func (r *flowRun) look(after time.Duration) int64 {
	r.now = r.now.Add(after)
	if r.state.InFlight > 0 {
		r.state.Busy += after
	}
	return r.next(r.now, r.state, r.most)
}

func TestFlowStartsSlowlyAndDoublesWhileStarved(t *testing.T) {
	r := newFlowRun(10_000)
	if r.bound != minReady {
		t.Fatalf("the first bound is %d, want %d", r.bound, minReady)
	}
	r.state.Waiting, r.state.InFlight = 1_000_000, 10
	for want := int64(2 * minReady); want <= 10_000; want *= 2 {
		r.state.Finished += want / 2
		if got := r.look(time.Millisecond); got != want {
			t.Fatalf("starved after %d jobs: bound %d, want %d", r.state.Finished, got, want)
		}
	}
}

func TestFlowDoesNotDoubleWithoutNeed(t *testing.T) {
	starved := bulk.TypeState{Waiting: 100, InFlight: 10, Finished: 100}
	for name, spoil := range map[string]func(*bulk.TypeState){
		"jobs are ready":             func(s *bulk.TypeState) { s.Ready = 1 },
		"nothing waits":              func(s *bulk.TypeState) { s.Waiting = 0 },
		"nobody works":               func(s *bulk.TypeState) { s.InFlight = 0 },
		"less than a bound was done": func(s *bulk.TypeState) { s.Finished = minReady - 1 },
	} {
		r := newFlowRun(10_000)
		r.state = starved
		spoil(&r.state)
		if got := r.look(time.Millisecond); got != minReady {
			t.Errorf("%s: bound %d, want %d", name, got, minReady)
		}
	}
}

func TestFlowFollowsTheSpeed(t *testing.T) {
	r := newFlowRun(10_000)
	r.state = bulk.TypeState{Ready: 5, InFlight: 10, Waiting: 1000}
	for _, c := range []struct {
		name     string
		finished int64
		after    time.Duration
		want     int64
	}{
		{"a second's work", 700, time.Second, 700},
		{"before a second has passed it stays", 5000, 900 * time.Millisecond, 700},
		{"of more than a second, a second's part", 0, 1100 * time.Millisecond, 2500},
		{"it falls with the speed", 100, time.Second, 100},
		{"to the floor", 1, time.Second, minReady},
		{"and rises", 20, 500 * time.Millisecond, minReady},
		{"to the cap", 1_000_000, 500 * time.Millisecond, 10_000},
	} {
		r.state.Finished += c.finished
		if got := r.look(c.after); got != c.want {
			t.Fatalf("%s: bound %d, want %d", c.name, got, c.want)
		}
	}
}

func TestFlowKeepsItsBoundWhileNothingWaits(t *testing.T) {
	r := newFlowRun(10_000)
	r.state = bulk.TypeState{Ready: 5, InFlight: 10, Waiting: 1000, Finished: 900}
	r.look(time.Second)
	r.state.Waiting = 0
	r.state.Finished += 10
	if got := r.look(time.Second); got != 900 {
		t.Errorf("10 jobs a second, as there are no more: bound %d, want 900", got)
	}
	r.state.Finished += 1200
	if got := r.look(time.Second); got != 1200 {
		t.Errorf("a speed above the bound: bound %d, want 1200", got)
	}
}

func TestFlowMeasuresTheTimeInWhichThereWasWork(t *testing.T) {
	r := newFlowRun(10_000)
	r.state = bulk.TypeState{Waiting: 1000, Finished: 20, Busy: 200 * time.Millisecond}
	if got := r.look(time.Second); got != 100 {
		t.Errorf("20 jobs in the 200 ms of a second that a limit left: bound %d, want 100", got)
	}
	if got := r.look(time.Second); got != 100 {
		t.Errorf("a second without work: bound %d, want 100 still", got)
	}
}

func TestFlowStartsAgainWhenTheCounterDoes(t *testing.T) {
	r := newFlowRun(10_000)
	r.state = bulk.TypeState{Ready: 5, InFlight: 10, Waiting: 1000, Finished: 900}
	r.look(time.Second)
	r.state.Finished = 3 // the type was gone, and is back
	if got := r.look(time.Second); got != minReady {
		t.Fatalf("bound %d, want %d", got, minReady)
	}
	r.state.Finished += 50
	if got := r.look(time.Second); got != 50 {
		t.Errorf("50 jobs in the second since: bound %d, want 50", got)
	}
}

func TestFlowStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newFlowRun(rapid.Int64Range(1, 1_000_000).Draw(t, "most"))
		for range rapid.IntRange(1, 50).Draw(t, "looks") {
			r.state.Ready = rapid.Int64Range(0, 3).Draw(t, "ready")
			r.state.InFlight = rapid.Int64Range(0, 3).Draw(t, "in flight")
			r.state.Waiting = rapid.Int64Range(0, 3).Draw(t, "waiting")
			r.state.Finished = max(0, r.state.Finished+rapid.Int64Range(-10, 1<<40).Draw(t, "finished"))
			after := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "after"))
			got := r.look(after)
			if got > r.most || got < min(minReady, r.most) {
				t.Fatalf("bound %d, want from %d to %d", got, min(minReady, r.most), r.most)
			}
		}
	})
}

// TestRoomOfAnIdleType checks that an idle type gets no bound, which others would lose.
func TestRoomOfAnIdleType(t *testing.T) {
	e := &Engine{config: bulk.Config{}.WithDefaults()}
	b := bulk.Backlog{Now: time.Unix(1_700_000_000, 0), Types: map[string]bulk.TypeState{
		"asked for": {Ready: 1, Waiting: 100}, "idle": {Ready: 1, Waiting: 100, Idle: true},
	}}
	room := e.free(b, map[string]*flow{})
	if room.Types["idle"] != 0 || room.Types["asked for"] == 0 {
		t.Errorf("room %v, want none for the idle type and some for the other", room.Types)
	}
}
