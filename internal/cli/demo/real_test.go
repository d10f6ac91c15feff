package demo

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// slower returns a stage on which everything takes as many times as long.
func (s demoStage) slower(times int64) demoStage {
	for _, d := range []*time.Duration{
		&s.Shop.Over, &s.Shop.AwayMin, &s.Shop.AwayMax, &s.Shop.Look, &s.Ride.Over, &s.OpensIn,
		&s.ShopRoom.PassTTL, &s.ShopRoom.ClaimWindow, &s.ShopRoom.AbandonAfter, &s.ShopRoom.Grace,
		&s.RideRoom.Interval, &s.RideRoom.Stay, &s.RideRoom.ClaimWindow, &s.RideRoom.AbandonAfter, &s.RideRoom.Grace,
	} {
		*d = scale(*d, times)
	}
	return s
}

func scale(d time.Duration, times int64) time.Duration { return time.Duration(int64(d) * times) }

// lateness measures how late this process runs at most, until the function that it returns is called.
func lateness() (most func() time.Duration) {
	const every = 20 * time.Millisecond
	stop, late := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		var most time.Duration
		for last := time.Now(); ; {
			select {
			case <-tick.C:
				most = max(most, time.Since(last)-every)
				last = time.Now()
			case <-stop:
				late <- most
				return
			}
		}
	}()
	return func() time.Duration { close(stop); return <-late }
}

// The demo on its own engine, topics and target, with a small file. The visitors have a second for a request, which
// passes through several goroutines: on a machine that runs each of them late, it is tried again with more time.
func TestDemoForReal(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for times := int64(1); ; times *= 3 {
		most := lateness()
		result, err := demoForReal(t, times)
		if late := most(); err != nil && late > scale(200*time.Millisecond, times) && times < 9 {
			t.Logf("again, after the process was late by %v: %v", late, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(5*5 + 128); result.Events != want || result.Committed != want || result.Jobs != 300 {
			t.Errorf("%d events, of which %d were committed, want %d, of 300 jobs: %+v", result.Events, result.Committed, want, result)
		}
		if r := result.Rooms; r.Visitors != 240 || r.MostInside == 0 || r.MostInside > 10 || r.Committed < 3*200 || r.Abandoned == 0 || r.CameBack == 0 {
			t.Errorf("of the rooms: %+v", *r)
		}
		return
	}
}

// demoForReal runs the demo with visitors who take as many times as long.
func demoForReal(t *testing.T, times int64) (result demoJSON, err error) {
	t.Helper()
	parts := newFakeDemo().parts()
	parts.open, parts.target, parts.rooms = openDemo, startDemoTarget, playRooms
	parts.stage = newDemoStage()
	parts.stage.Shop.Visitors, parts.stage.Shop.Over = 200, time.Second
	parts.stage.ShopRoom.Capacity, parts.stage.Shop.Behind = 10, 60
	parts.stage.Ride.Visitors, parts.stage.RideRoom.Batch = 40, 15
	parts.stage = parts.stage.slower(times)
	command := demoCommand(parts)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out, stderr bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&stderr)
	command.SetArgs([]string{"--seconds", "5", "--json"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		return result, err
	}
	return result, json.Unmarshal(out.Bytes(), &result)
}
