package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
)

// demoRoomsGroup is the consumer group that reads the events of the rooms.
const demoRoomsGroup = "demo-rooms"

// demoStage describes the rooms and their visitors: a shop as a bank teller, and a ride
// as an amusement park.
type demoStage struct {
	Shop, Ride         visitorMix
	ShopRoom, RideRoom room.Settings
	// OpensIn is how long after the beginning the ride opens.
	OpensIn time.Duration
}

// newDemoStage returns a stage of 2,600 visitors. They take about half a second where
// real ones take minutes, and all times of the rooms are as short.
func newDemoStage() demoStage {
	return demoStage{
		Shop: visitorMix{
			Visitors: 2_000, Over: 4 * time.Second, Wander: 8, GiveUp: 4, Vanish: 4, Return: 5,
			AwayMin: 4500 * time.Millisecond, AwayMax: 6500 * time.Millisecond, Pages: 1, Look: 300 * time.Millisecond,
			// A visitor nearer the front would be called before being away long enough to be skipped.
			Behind: 500,
		},
		ShopRoom: room.Settings{
			Mode: room.Teller, Capacity: 160, PassTTL: 1500 * time.Millisecond,
			ClaimWindow: 2 * time.Second, AbandonAfter: 4 * time.Second, Grace: 3 * time.Second,
		},
		Ride: visitorMix{Visitors: 600, Over: 2 * time.Second, Wander: 100},
		RideRoom: room.Settings{
			Mode: room.Park, Batch: 75, Interval: time.Second, Stay: 2 * time.Second,
			ClaimWindow: time.Second, AbandonAfter: 6 * time.Second, Grace: 5 * time.Second,
		},
		OpensIn: 2500 * time.Millisecond,
	}
}

// stageConnections is how many connections the visitors of a room share.
const stageConnections = 128

// roomRun is one room of the demo: its visitors and its history.
type roomRun struct {
	Name     string
	Room     room.Settings
	Visitors []*demoVisitor
	History  *roomHistory

	client *http.Client
	served atomic.Int64
}

func newRoomRun(name, gate string, settings room.Settings, c visitorMix) *roomRun {
	r := &roomRun{Name: name, Room: settings.WithDefaults()}
	r.client = &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: stageConnections, MaxIdleConnsPerHost: stageConnections, DisableCompression: true,
	}}
	for _, plan := range c.Plan() {
		r.Visitors = append(r.Visitors, &demoVisitor{visitorPlan: plan, gate: gate, client: r.client, cookies: map[string]string{}})
	}
	return r
}

// Run runs all visits.
func (r *roomRun) Run(ctx context.Context) error {
	defer r.client.CloseIdleConnections()
	all, ctx := errgroup.WithContext(ctx)
	for _, v := range r.Visitors {
		all.Go(func() error {
			err := v.Run(ctx)
			if v.Inside {
				r.served.Add(1)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("a visitor of %s: %w", r.Name, err)
	}
	return nil
}

// roomsPlay is one run of the stage.
type roomsPlay struct {
	*demoRooms
	runs  []*roomRun
	shown *term.Display[*roomMoment]
	start time.Time
}

// playRooms runs the stage of the demo and gathers the results for the report.
func playRooms(ctx context.Context, d *demo, engine demoEngine) (_ *roomsResult, err error) {
	p := &roomsPlay{demoRooms: engine.Rooms(), start: time.Now(), shown: roomsDisplayOn(d.Err, d.JSON)}
	stage := d.stage
	stage.RideRoom.OpensAt = p.start.Add(stage.OpensIn).Truncate(time.Millisecond)
	p.runs = []*roomRun{
		newRoomRun(demoShopRoom, p.gates[demoShopRoom], stage.ShopRoom, stage.Shop),
		newRoomRun(demoRideRoom, p.gates[demoRideRoom], stage.RideRoom, stage.Ride),
	}
	introduceRooms(d, p)
	tail, err := engine.Tail(ctx, events.RoomTopic, demoRoomsGroup)
	if err != nil {
		return nil, err
	}
	seen := newSeenRooms()
	events := readEvents(ctx, tail, seen)
	defer events.Close()
	for _, r := range p.runs {
		if _, _, err := p.PutRoom(ctx, r.Name, r.Room); err != nil {
			return nil, fmt.Errorf("make the room %s: %w", r.Name, err)
		}
	}
	if err := p.play(ctx); err != nil {
		return nil, err
	}
	result := &roomsResult{
		Shop: p.runs[0], Ride: p.runs[1], Took: time.Since(p.start),
		Requests: p.shop.requests.Load(), WithoutPass: p.shop.withoutPass.Load(),
	}
	entered, err := p.entered(ctx)
	if err != nil {
		return nil, err
	}
	result.Total, result.Committed, err = events.Await(ctx, func(all int64) bool {
		// An event may have been read since all were counted.
		return seen.total == all && seen.ended[demoShopRoom] >= entered[demoShopRoom] && seen.ended[demoRideRoom] >= entered[demoRideRoom]
	})
	if err != nil {
		return nil, err
	}
	result.Seen = seen
	for _, r := range p.runs {
		r.History = replay(seen.events[r.Name])
	}
	return result, p.number(ctx)
}

// play runs all visits, and then waits until the rooms are empty.
func (p *roomsPlay) play(ctx context.Context) error {
	all, playing := errgroup.WithContext(ctx)
	for _, r := range p.runs {
		all.Go(func() error { return r.Run(playing) })
	}
	done := make(chan error, 1)
	go func() { done <- all.Wait() }()
	gone, failed := false, error(nil)
	var deadline time.Time
	for {
		moment, empty, err := p.look(ctx)
		if err == nil {
			p.shown.Show(moment)
		} else if !gone && failed == nil {
			failed = err
		}
		if gone && (empty || failed != nil) {
			break
		}
		if gone && time.Now().After(deadline) {
			failed = errors.New("visitors are left in the rooms who should be gone")
			continue
		}
		select {
		case err := <-done:
			gone, failed = true, errors.Join(failed, err)
			deadline = time.Now().Add(p.patience())
		case <-time.After(local.PollInterval):
		}
	}
	p.shown.Close()
	return errors.Join(failed, ctx.Err())
}

// patience bounds the time until the visitors who stopped asking are removed.
func (p *roomsPlay) patience() time.Duration {
	longest := time.Duration(0)
	for _, r := range p.runs {
		longest = max(longest, r.Room.AbandonAfter+r.Room.Grace, r.Room.PassTTL, r.Room.Stay)
	}
	return longest + eventPatience
}

// look reads the state of the rooms.
func (p *roomsPlay) look(ctx context.Context) (m *roomMoment, empty bool, err error) {
	m, empty = &roomMoment{Elapsed: time.Since(p.start)}, true
	for _, r := range p.runs {
		view, err := p.Room(ctx, r.Name)
		if err != nil {
			return nil, false, err
		}
		f := roomFigures{
			Name: r.Name, Inside: view.Status.Inside, Waiting: view.Status.Waiting, Served: r.served.Load(),
			Visitors: int64(len(r.Visitors)), Capacity: r.Room.Capacity,
		}
		if r.Room.Mode == room.Park {
			f.Capacity = r.Room.Batch * int64((r.Room.Stay+r.Room.Interval-1)/r.Room.Interval)
		}
		empty = empty && f.Inside == 0 && f.Waiting == 0
		m.Rooms = append(m.Rooms, f)
	}
	return m, empty, nil
}

// entered returns how many visitors have entered each room, from its store.
func (p *roomsPlay) entered(ctx context.Context) (map[string]int64, error) {
	entered := map[string]int64{}
	for _, r := range p.runs {
		view, err := p.Room(ctx, r.Name)
		if err != nil {
			return nil, err
		}
		entered[r.Name] = view.Status.Entered
	}
	return entered, nil
}

// number reads the numbers of visitors who were let in at once from their tickets.
func (p *roomsPlay) number(ctx context.Context) error {
	for _, r := range p.runs {
		for _, v := range r.Visitors {
			ticket, err := p.Parse(ctx, r.Name, v.Ticket, netip.Addr{})
			if err != nil {
				return fmt.Errorf("a ticket of %s: %w", r.Name, err)
			}
			v.Moved = v.Moved || v.Number != 0 && v.Number != ticket.Number
			v.Number = ticket.Number
		}
	}
	return nil
}

func introduceRooms(d *demo, p *roomsPlay) {
	shop, ride := p.runs[0], p.runs[1]
	d.Say("\n%s come to a shop that holds %d at once (%s), and %d to a ride\nthat takes %d each second (%s). Some give up, some go away and come back in time,\nsome do not come back.\n",
		term.Counted(int64(len(shop.Visitors)), "visitor"), shop.Room.Capacity, p.gates[shop.Name],
		len(ride.Visitors), ride.Room.Batch, p.gates[ride.Name])
}
