package room

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

func newListCommand() *cobra.Command {
	return onRooms(&cobra.Command{
		Use:   "list",
		Short: "List the rooms, with how many wait and are inside",
		Example: `  sluice room list
  sluice room list --json | jq -r 'select(.state == "paused").room'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, r *session, _ []string) error {
		rooms, err := r.Rooms(ctx)
		if err != nil {
			return err
		}
		return r.list(rooms)
	})
}

// list prints rooms.
func (r *session) list(rooms []client.Room) error {
	type column = term.Column[client.Room]
	return term.List(&r.Output, rooms, "no rooms",
		column{Header: "room", Words: true, Cell: func(of *client.Room) string { return term.Clip(term.Printable(of.Name), 64) }},
		column{Header: "mode", Words: true, Cell: func(of *client.Room) string { return string(of.Mode) }},
		column{Header: "state", Words: true, Cell: func(of *client.Room) string { return string(of.State) }},
		column{Header: "waiting", Cell: func(of *client.Room) string { return humanize.Comma(of.Waiting) }},
		column{Header: "inside", Cell: func(of *client.Room) string { return humanize.Comma(of.Inside) }},
		column{Header: "admitted", Cell: func(of *client.Room) string { return humanize.Comma(of.AdmittedTotal) }},
		column{Header: "per second", Cell: outflow})
}

// letsIn describes in a few words how a room admits visitors.
func letsIn(of *client.Room) string {
	s, limit := &of.Settings, humanize.Comma(of.Limit())
	if of.Found != nil {
		limit += " (auto)"
	}
	if s.Mode == room.Park {
		return fmt.Sprintf("%s every %s, for %s", limit, spellLimit(s.Interval), spellLimit(s.Stay))
	}
	return fmt.Sprintf("at most %s at once, with %s passes of %s", limit, s.Pass, spellLimit(s.PassTTL))
}

// spellLimit formats a configured duration: 10m, not 10m00s.
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

func outflow(of *client.Room) string { return term.Or(of.Outflow, "–", term.PerSecond) }

func newShowCommand() *cobra.Command {
	var watch bool
	command := onRooms(&cobra.Command{
		Use:   "show NAME",
		Short: "Show a room: its settings, and how many wait and are inside",
		Long: `Show a room: its settings, and how many wait and are inside. With --watch it continues,
redrawn every second, until Ctrl-C; with --json too, each second is a line.`,
		Example: `  sluice room show shop
  sluice room show shop --watch
  sluice room show shop --json | jq .waiting`,
		Args: oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		of, err := r.Room(ctx, args[0])
		switch {
		case err != nil:
			return err
		case watch:
			return r.watch(ctx, &of)
		case r.JSON:
			return r.WriteJSON(of)
		}
		r.Facts(roomFacts(&of), true)
		return nil
	})
	command.Flags().BoolVar(&watch, "watch", false, "go on until Ctrl-C")
	return command
}

// roomFacts are the lines of "show".
func roomFacts(of *client.Room) []term.Fact {
	s := of.Settings
	if of.Event != nil {
		s.PrequeueFrom, s.OpensAt, s.EndsAt = of.Event.PrequeueFrom, of.Event.OpensAt, of.Event.EndsAt
	}
	at := func(t time.Time) string { return term.If(!t.IsZero(), t.Format(time.RFC3339)) }
	return []term.Fact{
		{"room", term.Printable(of.Name)},
		{"state", string(of.State)},
		{"lets in", letsIn(of)},
		{"waiting", humanize.Comma(of.Waiting) + " of at most " + humanize.Comma(s.MaxWaiting)},
		{"inside", humanize.Comma(of.Inside)},
		{"admitted", humanize.Comma(of.AdmittedTotal)},
		{"per second", outflow(of)},
		{"claims", "within " + spellLimit(s.ClaimWindow)},
		{"silence", fmt.Sprintf("skipped after %s, given up %s later", spellLimit(s.AbandonAfter), spellLimit(max(s.Grace, 0)))},
		{"repeats", term.If(s.Repeats != "", fmt.Sprintf("%s in %s, for %s", s.Repeats, s.TimeZone, spellLimit(s.Lasts)))},
		{"pre-queue from", at(s.PrequeueFrom)},
		{"opens at", at(s.OpensAt)},
		{"ends at", at(s.EndsAt)},
		{"order", term.If(s.Method == room.Lottery, "visitors who come before the opening are drawn by lot")},
		{"lanes", strings.ReplaceAll(s.Lanes, ",", ", ")},
		{"renewals", term.If(s.Renewals > 0, term.Counted(int64(s.Renewals), "time"))},
		{"joins", joinsText(s.JoinsPerMinute)},
		{"tickets", term.If(s.BindTickets, "are bound to the client's address")},
		{"visitors", term.If(s.InvitationOnly, "need a key or token")},
		{"guards", rulesText(s.Routes)},
		{"lets pass", rulesText(s.Bypass)},
		{"store fails", onStoreFailure[s.OnStoreFailure]},
	}
}

// joinsText says how many visitors may enter from one address.
func joinsText(perMinute int64) string {
	if perMinute < 0 {
		return "any number from one address"
	}
	return humanize.Comma(cmp.Or(perMinute, room.DefaultJoinsPerMinute)) + " per minute from one address"
}

var onStoreFailure = map[room.OnStoreFailure]string{
	room.FailOpen: "a gate lets everybody through", room.FailClosed: "a gate lets nobody through",
}

func rulesText(rules []room.Rule) string {
	texts := make([]string, len(rules))
	for i, rule := range rules {
		texts[i] = term.Printable(strings.TrimSpace(rule.Method + " " + rule.Host + rule.Path))
	}
	return strings.Join(texts, ", ")
}
