package web

import (
	"context"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

type roomRow struct {
	Name, To         string
	State            pill
	Mode             string
	Inside, Limit    int64
	Auto, Teller     bool
	Waiting          int64
	Rate, Wait, When string
	NoShows          string
}

type roomList struct {
	Off   bool
	Rooms []roomRow
	Pages pager
}

type roomPage struct {
	roomRow
	// Manages reports whether the sender may change the room.
	Manages bool
	Facts   []fact
	Acts    []link
	// Report leads to the figures as CSV.
	Report string
}

func (d *Dashboard) showRooms() {
	d.show(Prefix+"rooms", "rooms", func(r *request) (string, any, error) {
		list := roomList{Off: d.options.Rooms == nil}
		if list.Off {
			return r.t("nav.rooms"), list, nil
		}
		views, more, err := d.options.Rooms.Rooms(r.Context(), r.get("after"), pageSize)
		next := ""
		for i := range views {
			list.Rooms = append(list.Rooms, r.room(&views[i]))
			next = views[i].Room.Name
		}
		if !more {
			next = ""
		}
		list.Pages = r.page(next)
		return r.t("nav.rooms"), list, err
	})
	d.show(Prefix+"rooms/room", "room", func(r *request) (string, any, error) {
		if d.options.Rooms == nil {
			return "", nil, room.ErrNoRoom
		}
		v, err := d.options.Rooms.Room(r.Context(), r.get("name"))
		if err != nil {
			return "", nil, err
		}
		page := roomPage{roomRow: r.room(&v), Facts: roomFacts(r.uiLanguage, &v), Report: named("rooms/report", v.Room.Name), Manages: may(r.Context(), access.ManageRooms)}
		if v.Room.Paused || v.Phase == room.AllSold {
			page.Acts = r.acts(page.Name, "resume_room")
		} else {
			page.Acts = r.acts(page.Name, "pause_room")
		}
		if v.Status.Now.Before(v.Room.Opening()) {
			page.Acts = append(page.Acts, r.acts(page.Name, "open_room")...)
		}
		page.Acts = append(page.Acts, r.acts(page.Name, "revoke_room")...)
		return page.Name, page, nil
	})
}

// room returns a room as lists show it.
func (l *uiLanguage) room(v *engine.View) roomRow {
	s := v.Room.Settings.WithDefaults()
	row := roomRow{
		Name: v.Room.Name, To: roomPath(v.Room.Name), State: l.phase(v.Phase), Mode: l.word("room.", string(s.Mode)), Teller: s.Mode == room.Teller,
		Inside: v.Status.Inside, Limit: v.Room.Limit(), Auto: v.Found != nil, Waiting: v.Status.Waiting, Rate: "0", Wait: "–",
		NoShows: percent(v.Status.NoShows, v.Status.Admitted),
	}
	if v.Found != nil {
		row.Limit = *v.Found
	}
	if v.Outflow != nil && *v.Outflow > 0 {
		row.Rate = decimal(60 * *v.Outflow)
		if v.Phase == room.Queueing && v.Status.Waiting > 0 {
			row.Wait = l.t("room.about", l.span(time.Duration(float64(v.Status.Waiting) / *v.Outflow * float64(time.Second))))
		}
	}
	if v.Status.Now.Before(v.Room.Opening()) {
		row.When = l.t("room.opens", l.ago(v.Room.Opening()))
	}
	return row
}

func (l *uiLanguage) phase(p room.Phase) pill {
	class := map[room.Phase]string{room.Open: "on", room.Queueing: "on", room.Paused: "warn", room.AllSold: "warn"}[p]
	return pill{class, l.word("phase.", string(p))}
}

func roomFacts(l *uiLanguage, v *engine.View) []fact {
	s, status := v.Room.Settings.WithDefaults(), &v.Status
	facts := []fact{
		{l.t("room.entered"), number(status.Entered)}, {l.t("room.admitted"), number(status.CameIn())}, {l.t("room.noshows"), l.t("room.noshow_part", number(status.NoShows), percent(status.NoShows, status.Admitted))},
		{l.t("room.departed"), number(status.Departed)}, {l.t("room.expired"), number(status.Expired)}, {l.t("room.called"), number(status.Called)},
		{l.t("room.claim"), l.span(s.ClaimWindow)}, {l.t("room.abandon"), l.span(s.AbandonAfter)}, {l.t("room.most"), number(s.MaxWaiting)},
	}
	if s.Mode == room.Teller {
		facts = append(facts, fact{l.t("room.ttl"), l.span(s.PassTTL)})
	} else {
		facts = append(facts, fact{l.t("room.interval"), l.span(s.Interval)}, fact{l.t("room.stay"), l.span(s.Stay)})
	}
	if v.Waits != nil {
		facts = append(facts, fact{l.t("room.waits"), l.t("room.waits_half", l.span(v.Waits.P50), l.span(v.Waits.P95))})
	}
	if !s.OpensAt.IsZero() {
		facts = append(facts, fact{l.t("room.opensat"), clock(s.OpensAt)})
	}
	if !s.EndsAt.IsZero() {
		facts = append(facts, fact{l.t("room.endsat"), clock(s.EndsAt)})
	}
	return facts
}

func roomsOn(d *Dashboard) bool { return d.options.Rooms != nil }

func ofRoom(change func(Rooms, context.Context, string) (engine.View, error)) func(context.Context, *Dashboard, string, string) error {
	return func(ctx context.Context, d *Dashboard, name, _ string) error {
		_, err := change(d.options.Rooms, ctx, name)
		return err
	}
}

func askRoom(d *Dashboard, r *request, name, _ string) (string, error) {
	v, err := d.options.Rooms.Room(r.Context(), name)
	return r.t("ask."+r.get("do"), name, number(v.Status.Waiting), number(v.Status.Inside)), err
}

// revokeRoom ends the visits of all who are inside.
func revokeRoom(ctx context.Context, d *Dashboard, name, _ string) error {
	return d.options.Rooms.RevokeAll(ctx, name)
}

// capacityOf returns the settings of a room with another capacity, or batch.
func capacityOf(v *engine.View, value string) (room.Settings, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 1 {
		return room.Settings{}, &room.SettingsError{Field: "capacity", Why: "is a whole number from 1 to 10,000,000"}
	}
	s := v.Room.Settings
	if s.Mode == room.Teller {
		s.Capacity = n
	} else {
		s.Batch = n
	}
	return s, engine.ValidateSettings(s)
}

func askCapacity(d *Dashboard, r *request, name, value string) (string, error) {
	v, err := d.options.Rooms.Room(r.Context(), name)
	if err != nil {
		return "", err
	}
	s, err := capacityOf(&v, value)
	if err != nil {
		return "", err
	}
	now, then := r.room(&v), max(s.Capacity, s.Batch)
	switch {
	case s.Mode == room.Park:
		return r.t("ask.batch", name, number(now.Limit), number(then)), nil
	case then < v.Status.Inside:
		return r.t("ask.less", name, number(now.Limit), number(then), number(v.Status.Inside)), nil
	}
	return r.t("ask.more", name, number(now.Limit), number(then), number(min(v.Status.Waiting, then-v.Status.Inside))), nil
}

func setCapacity(ctx context.Context, d *Dashboard, name, value string) error {
	return d.changeRoom(ctx, name, func(v *engine.View) (room.Settings, error) { return capacityOf(v, value) })
}

// openRoom opens a room now instead of later.
func openRoom(ctx context.Context, d *Dashboard, name, _ string) error {
	return d.changeRoom(ctx, name, func(v *engine.View) (room.Settings, error) {
		s := v.Room.Settings
		s.OpensAt = v.Status.Now
		if !s.PrequeueFrom.Before(s.OpensAt) {
			s.PrequeueFrom = time.Time{}
		}
		return s, nil
	})
}

func (d *Dashboard) changeRoom(ctx context.Context, name string, f func(*engine.View) (room.Settings, error)) error {
	v, err := d.options.Rooms.Room(ctx, name)
	if err != nil {
		return err
	}
	s, err := f(&v)
	if err != nil {
		return err
	}
	_, _, err = d.options.Rooms.PutRoom(ctx, name, s)
	return err
}
