package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// fakePutter has rooms and counts how often one is put.
type fakePutter struct {
	rooms map[string]room.Settings
	puts  int
}

func (f *fakePutter) Room(_ context.Context, name string) (engine.View, error) {
	settings, has := f.rooms[name]
	if !has {
		return engine.View{}, room.ErrNoRoom
	}
	return engine.View{Room: engine.Room{Name: name, Settings: settings}}, nil
}

func (f *fakePutter) PutRoom(_ context.Context, name string, s room.Settings) (engine.View, bool, error) {
	if err := s.Validate(); err != nil {
		return engine.View{}, false, err
	}
	_, has := f.rooms[name]
	f.rooms[name] = s.WithDefaults()
	f.puts++
	return engine.View{}, !has, nil
}

// Rooms of the settings are created, changed if they differ, and otherwise left unchanged.
func TestRoomsOfTheSettings(t *testing.T) {
	of := map[string]room.Settings{
		"new": {Mode: room.Teller, Capacity: 1}, "same": {Mode: room.Teller, Capacity: 2}, "changed": {Mode: room.Teller, Capacity: 3},
	}
	f := &fakePutter{rooms: map[string]room.Settings{
		"same": room.Settings{Mode: room.Teller, Capacity: 2}.WithDefaults(), "changed": room.Settings{Mode: room.Teller, Capacity: 9}.WithDefaults(),
		"other": {Mode: room.Teller, Capacity: 4},
	}}
	if err := newRoomsOfFile(f, of).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"new": 1, "same": 2, "changed": 3, "other": 4} {
		if got := f.rooms[name].Capacity; got != want {
			t.Errorf("%s has a capacity of %d, want %d", name, got, want)
		}
	}
	if f.puts != 2 {
		t.Errorf("%d rooms were put, want 2", f.puts)
	}
}

// The flags of a gate create its room, or change the settings that they name.
func TestRoomOfTheFlags(t *testing.T) {
	teller := room.Settings{Mode: room.Teller, Capacity: 2, PassTTL: time.Minute, Routes: []room.Rule{{Path: "/a"}}}.WithDefaults()
	other := teller
	other.Capacity = 9
	for _, test := range []struct {
		name   string
		had    *room.Settings
		object map[string]any
		want   room.Settings
		puts   int
		wrong  string
	}{
		{"missing, and nothing said", nil, nil, room.Settings{}, 0, "there is no room shop yet"},
		{"missing", nil, map[string]any{"mode": room.Teller, "capacity": 2, "pass_ttl_ms": 60000, "routes": []map[string]string{{"path": "/a"}}}, teller, 1, ""},
		{"there, and nothing said", &teller, nil, teller, 0, ""},
		{"there, the same said", &teller, map[string]any{"mode": room.Teller, "capacity": 2}, teller, 0, ""},
		{"there, something else said", &teller, map[string]any{"mode": room.Teller, "capacity": 9}, other, 1, ""},
		{"there, without a mode", &teller, map[string]any{"capacity": 9}, other, 1, ""},
		{"another mode", &teller, map[string]any{"mode": room.Park, "batch": 1, "interval_ms": 1000, "stay_ms": 1000},
			room.Settings{Mode: room.Park, Batch: 1, Interval: time.Second, Stay: time.Second}.WithDefaults(), 1, ""},
		{"wrong", nil, map[string]any{"mode": room.Teller, "capacity": 0}, room.Settings{}, 0, "capacity"},
		{"not enough", nil, map[string]any{"mode": room.Park, "batch": 1}, room.Settings{}, 0, "interval_ms"},
	} {
		f := &fakePutter{rooms: map[string]room.Settings{}}
		if test.had != nil {
			f.rooms["shop"] = *test.had
		}
		err := newRoomOfFlags(f, "shop", test.object).Start(t.Context())
		if test.wrong != "" {
			if !exit.IsUsage(err) || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: %v, want a usage error about %q", test.name, err, test.wrong)
			}
			continue
		}
		if got := f.rooms["shop"]; err != nil || fmt.Sprint(got) != fmt.Sprint(test.want) || f.puts != test.puts {
			t.Errorf("%s: %v, put %d times\n%+v, want\n%+v", test.name, err, f.puts, got, test.want)
		}
	}
}
