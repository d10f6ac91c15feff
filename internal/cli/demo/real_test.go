package demo

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
)

// The demo on its own engine, topics and target, with a small file.
func TestDemoForReal(t *testing.T) {
	leaks.Check(t)
	parts := newFakeDemo().parts()
	parts.open, parts.target, parts.rooms = openDemo, startDemoTarget, playRooms
	parts.stage = newDemoStage()
	parts.stage.Shop.Visitors, parts.stage.Shop.Over = 200, time.Second
	parts.stage.ShopRoom.Capacity, parts.stage.Shop.Behind = 10, 60
	parts.stage.Ride.Visitors, parts.stage.RideRoom.Batch = 40, 15
	command := demoCommand(parts)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out, stderr bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&stderr)
	command.SetArgs([]string{"--seconds", "5", "--json"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s%s", err, out.Bytes(), stderr.Bytes())
	}
	var result demoJSON
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatal(err)
	}
	if want := int64(5*5 + 128); result.Events != want || result.Committed != want || result.Jobs != 300 {
		t.Errorf("%d events, of which %d were committed, want %d, of 300 jobs: %s", result.Events, result.Committed, want, out.Bytes())
	}
	if r := result.Rooms; r.Visitors != 240 || r.MostInside == 0 || r.MostInside > 10 || r.Committed < 3*200 || r.Abandoned == 0 || r.CameBack == 0 {
		t.Errorf("of the rooms: %+v", *r)
	}
}
