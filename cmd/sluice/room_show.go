package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

func newRoomListCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "list",
		Short: "List the rooms, with how many wait and are inside",
		Example: `  sluice room list
  sluice room list --json | jq -r 'select(.state == "paused").room'`,
		Args: cobra.NoArgs,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, _ []string) error {
			rooms, err := r.Rooms(ctx)
			if err != nil {
				return err
			}
			return r.list(rooms)
		}),
	}
	f.add(command)
	return command
}

// list writes rooms as a table; with --json each on a line.
func (r *roomRemote) list(rooms []client.Room) error {
	g := grid{
		Header: []string{"room", "mode", "state", "waiting", "inside", "admitted", "per second"},
		Left:   map[int]bool{0: true, 1: true, 2: true},
	}
	for i := range rooms {
		of := &rooms[i]
		if r.json {
			if err := r.writeJSON(of); err != nil {
				return err
			}
			continue
		}
		g.Rows = append(g.Rows, []string{
			clip(printable(of.Name), 64), string(of.Mode), string(of.State), humanize.Comma(of.Waiting), humanize.Comma(of.Inside),
			humanize.Comma(of.AdmittedTotal), outflow(of),
		})
	}
	switch {
	case r.json:
	case len(rooms) == 0:
		r.say("no rooms")
	default:
		g.Write(r.out, r.out.Columns())
	}
	return nil
}

// letsIn says in a few words how a room lets people in.
func letsIn(of *client.Room) string {
	s := &of.Settings
	if s.Mode == room.Park {
		return fmt.Sprintf("%s every %s, for %s", humanize.Comma(s.Batch), spellLimit(s.Interval), spellLimit(s.Stay))
	}
	return fmt.Sprintf("at most %s at once, with %s passes of %s", humanize.Comma(s.Capacity), s.Pass, spellLimit(s.PassTTL))
}

// spellLimit is a duration that was set: 10m, not 10m00s.
func spellLimit(d time.Duration) string {
	spelled := d.String()
	if strings.HasSuffix(spelled, "m0s") {
		spelled = strings.TrimSuffix(spelled, "0s")
	}
	if strings.HasSuffix(spelled, "h0m") {
		spelled = strings.TrimSuffix(spelled, "0m")
	}
	return spelled
}

func outflow(of *client.Room) string {
	if of.Outflow == nil {
		return "–"
	}
	return perSecond(*of.Outflow)
}

func newRoomShowCommand() *cobra.Command {
	var f remoteFlags
	var watch bool
	command := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a room: its settings, and how many wait and are inside",
		Long: `Show a room: its settings, and how many wait and are inside. With --watch it goes on,
drawn anew every second, until Ctrl-C; with --json too, each second is a line.`,
		Example: `  sluice room show shop
  sluice room show shop --watch
  sluice room show shop --json | jq .waiting`,
		Args: oneRoom,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, args []string) error {
			of, err := r.Room(ctx, args[0])
			switch {
			case err != nil:
				return err
			case watch:
				return r.watch(ctx, &of)
			case r.json:
				return r.writeJSON(of)
			}
			r.show(&of)
			return nil
		}),
	}
	f.add(command)
	command.Flags().BoolVar(&watch, "watch", false, "go on until Ctrl-C")
	return command
}

// show writes one room.
func (r *roomRemote) show(of *client.Room) {
	facts := roomFacts(of)
	width := 0
	for _, fact := range facts {
		width = max(width, len(fact[0]))
	}
	for _, fact := range facts {
		value := text.WrapSoft(fact[1], max(r.out.Columns()-width-2, narrowestView/2))
		value = strings.ReplaceAll(value, " \n", "\n")
		value = strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(r.out, "%s  %s\n", left(fact[0], width), value)
	}
}

// roomFacts are the lines of "show".
func roomFacts(of *client.Room) [][2]string {
	s := &of.Settings
	facts := [][2]string{
		{"room", printable(of.Name)},
		{"state", string(of.State)},
		{"lets in", letsIn(of)},
		{"waiting", humanize.Comma(of.Waiting) + " of at most " + humanize.Comma(s.MaxWaiting)},
		{"inside", humanize.Comma(of.Inside)},
		{"admitted", humanize.Comma(of.AdmittedTotal)},
		{"per second", outflow(of)},
		{"claims", "within " + spellLimit(s.ClaimWindow)},
		{"silence", fmt.Sprintf("skipped after %s, given up %s later", spellLimit(s.AbandonAfter), spellLimit(max(s.Grace, 0)))},
	}
	add := func(name, value string) { facts = append(facts, [2]string{name, value}) }
	for _, at := range []struct {
		name string
		time time.Time
	}{{"pre-queue from", s.PrequeueFrom}, {"opens at", s.OpensAt}, {"ends at", s.EndsAt}} {
		if !at.time.IsZero() {
			add(at.name, at.time.Format(time.RFC3339))
		}
	}
	if s.Method == room.Lottery {
		add("order", "who comes before the opening is drawn by lot")
	}
	if s.Renewals > 0 {
		add("renewals", counted(int64(s.Renewals), "time"))
	}
	if s.JoinsPerMinute > 0 {
		add("joins", humanize.Comma(s.JoinsPerMinute)+" per minute from one address")
	}
	if s.BindTickets {
		add("tickets", "are bound to the client's address")
	}
	if len(s.Routes) > 0 {
		add("guards", rulesText(s.Routes))
	}
	if len(s.Bypass) > 0 {
		add("lets pass", rulesText(s.Bypass))
	}
	add("store fails", onStoreFailure[s.OnStoreFailure])
	return facts
}

var onStoreFailure = map[room.OnStoreFailure]string{
	room.FailOpen: "a gate lets everybody through", room.FailClosed: "a gate lets nobody through",
}

func rulesText(rules []room.Rule) string {
	texts := make([]string, len(rules))
	for i, rule := range rules {
		texts[i] = printable(strings.TrimSpace(rule.Method + " " + rule.Host + rule.Path))
	}
	return strings.Join(texts, ", ")
}
