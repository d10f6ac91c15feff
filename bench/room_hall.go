package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Hall has several servers of a waiting room: sluice on both stores, a handler that does nothing,
// a table of tokens in PostgreSQL and, once they are open, the floors of both stores. All run at the
// same time and are measured in turns.
type Hall struct {
	environment *Environment
	bare        *webServer
	floors      []*hallRoom
	rooms       []*hallRoom
	tokens      *tokenTable
}

type hallRoom struct {
	name    string
	server  *webServer
	crowd   crowd
	entered int
}

// The names of the systems in a Hall.
const (
	EmbeddedName = "sluice, embedded"
	OnRedisName  = "sluice, Redis"
	BareName     = "bare net/http handler"
	// The floors: what net/http leaves to any waiting room.
	FloorName      = "floor, embedded"
	RedisFloorName = "floor, Redis"
	TableName      = "PostgreSQL table"
)

// answerBytes is the approximate size of an answer to a waiting visitor.
const answerBytes = 190

// Served is what a system served in one measure.
type Served struct {
	Name string
	Latency
	// CPU is the processor time per request of the server and its Redis; 0 if it is not known.
	CPU time.Duration
}

// OpenHall starts all systems, with empty queues.
func (e *Environment) OpenHall(ctx context.Context) (h *Hall, err error) {
	h = &Hall{environment: e}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.bare, err = e.startBare(ctx, answerBytes); err != nil {
		return h, err
	}
	for _, name := range []string{EmbeddedName, OnRedisName} {
		server, err := e.startRooms(ctx, name == OnRedisName, "--kafka", "off")
		if err != nil {
			return h, fmt.Errorf("%s: %w", name, err)
		}
		h.rooms = append(h.rooms, &hallRoom{name: name, server: server})
	}
	h.tokens, err = e.startTokens(ctx)
	return h, err
}

// Close stops the systems.
func (h *Hall) Close() error {
	var err error
	if h.bare != nil {
		err = h.bare.stop()
	}
	for _, room := range h.served() {
		err = errors.Join(err, room.server.stop())
	}
	if h.tokens != nil {
		err = errors.Join(err, h.tokens.stop())
	}
	return err
}

// OpenFloors starts the floors, in which as many visitors wait as in the rooms.
func (h *Hall) OpenFloors(ctx context.Context) error {
	for _, onRedis := range []bool{false, true} {
		floor, err := h.environment.startFloor(ctx, onRedis, h.rooms[0].crowd.len())
		if err != nil {
			return err
		}
		h.floors = append(h.floors, floor)
	}
	return nil
}

// served returns the rooms, and the floors that are open.
func (h *Hall) served() []*hallRoom { return append(slices.Clone(h.rooms), h.floors...) }

// HallClients is the number of connections of a peak and of a steady rate: enough that the embedded
// store, where a join waits for the disk, is never idle.
const HallClients = 256

// FillTo lets visitors enter until the given number wait, and returns the rate at each of sluice's
// stores. The table is filled in one statement, which is not measured.
func (h *Hall) FillTo(ctx context.Context, waiting int) (all []Served, err error) {
	for _, room := range h.rooms {
		served, err := room.enter(ctx, load{connections: HallClients, most: waiting + roomInside - room.entered})
		if err == nil && room.crowd.len() != waiting {
			err = fmt.Errorf("%d wait, of %d who entered: want %d", room.crowd.len(), room.entered, waiting)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", room.name, err)
		}
		all = append(all, served)
	}
	syscall.Sync()
	return all, h.tokens.fillTo(ctx, waiting)
}

// enter lets visitors of the room enter, and keeps their tickets.
func (r *hallRoom) enter(ctx context.Context, l load) (Served, error) {
	l.request = enterRequest
	l.answer = func(_ int, body []byte) error {
		r.entered++
		return r.crowd.add(body)
	}
	return r.server.serve(ctx, r.name, l)
}

func (r *hallRoom) ask(ctx context.Context, l load) (Served, error) {
	l.request = r.crowd.askRequest
	l.answer = waits
	return r.server.serve(ctx, r.name, l)
}

// serve sends a load, and measures the server's processor time.
func (s *webServer) serve(ctx context.Context, name string, l load) (served Served, err error) {
	before, err := s.cpu()
	if err != nil {
		return served, err
	}
	l.address = s.address
	served.Name = name
	if served.Latency, err = l.run(ctx); err != nil {
		return served, fmt.Errorf("%s: %w", name, err)
	}
	after, err := s.cpu()
	served.CPU = (after - before) / time.Duration(max(served.Records, 1))
	return served, err
}

// cpu returns the processor time that the server and its Redis have used.
func (s *webServer) cpu() (time.Duration, error) {
	used, err := s.process.cpu()
	if err != nil || s.redis == nil {
		return used, err
	}
	of, err := s.redis.process.cpu()
	return used + of, err
}

// hallTurns is how often systems take turns within a measure, so that other load on the machine
// affects all of them.
const hallTurns = 4

// Positions measures waiting visitors who ask for their position, each client one after another,
// for a time at each system in several turns; the table comes last, in one turn.
func (h *Hall) Positions(ctx context.Context, clients int, during time.Duration) ([]Served, error) {
	all, err := h.inTurns(func() ([]Served, error) {
		return h.positions(ctx, load{connections: clients, during: during / hallTurns})
	})
	if err != nil {
		return all, err
	}
	latency, err := h.tokens.run(ctx, clients, during, h.tokens.position)
	return append(all, Served{Name: TableName, Latency: latency}), err
}

func (h *Hall) positions(ctx context.Context, l load) (all []Served, err error) {
	for _, room := range h.served() {
		served, err := room.ask(ctx, l)
		if err != nil {
			return all, err
		}
		all = append(all, served)
	}
	l.request = h.rooms[0].crowd.askRequest
	served, err := h.bare.serve(ctx, BareName, l)
	return append(all, served), err
}

// Joins measures visitors who enter, as Positions does.
func (h *Hall) Joins(ctx context.Context, clients int, during time.Duration) ([]Served, error) {
	all, err := h.inTurns(func() ([]Served, error) {
		return h.joins(ctx, load{connections: clients, during: during / hallTurns})
	})
	if err != nil {
		return all, err
	}
	latency, err := h.tokens.run(ctx, clients, during, h.tokens.enter)
	return append(all, Served{Name: TableName, Latency: latency}), err
}

func (h *Hall) joins(ctx context.Context, l load) (all []Served, err error) {
	for _, room := range h.served() {
		served, err := room.enter(ctx, l)
		if err != nil {
			return all, err
		}
		all = append(all, served)
	}
	l.request = enterRequest
	served, err := h.bare.serve(ctx, BareName, l)
	return append(all, served), err
}

// inTurns takes a measure several times, and returns the means: of the processor time by request,
// of the others by turn.
func (h *Hall) inTurns(measure func() ([]Served, error)) (all []Served, err error) {
	for range hallTurns {
		turn, err := measure()
		if err != nil {
			return all, err
		}
		if all == nil {
			all = make([]Served, len(turn))
		}
		for i, served := range turn {
			sum := &all[i]
			sum.Name = served.Name
			sum.CPU += served.CPU * time.Duration(served.Records)
			sum.Records += served.Records
			sum.Rate += served.Rate / hallTurns
			sum.Median += served.Median / hallTurns
			sum.P99 += served.P99 / hallTurns
		}
	}
	for i := range all {
		all[i].CPU /= time.Duration(max(all[i].Records, 1))
	}
	return all, nil
}

// AtHalf measures joins, or else positions, at half of the systems' peak rates; the table is left
// out.
func (h *Hall) AtHalf(ctx context.Context, peaks []Served, joins bool, during time.Duration) (all []Served, err error) {
	for _, peak := range peaks {
		l := load{connections: HallClients, during: during, perSecond: peak.Rate / 2}
		var served Served
		switch room := h.room(peak.Name); {
		case room != nil && joins:
			served, err = room.enter(ctx, l)
		case room != nil:
			served, err = room.ask(ctx, l)
		case peak.Name == BareName:
			l.request = enterRequest
			if !joins {
				l.request = h.rooms[0].crowd.askRequest
			}
			served, err = h.bare.serve(ctx, BareName, l)
		default:
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, served)
	}
	return all, nil
}

func (h *Hall) room(name string) *hallRoom {
	for _, room := range h.served() {
		if room.name == name {
			return room
		}
	}
	return nil
}

// HallMemory is the memory of the queue, in bytes.
type HallMemory struct {
	// Embedded is the resident set of sluice on the embedded store, Process that of sluice on
	// Redis, Redis the memory that Redis reports, and RedisResident its resident set.
	Embedded, Process, Redis, RedisResident int64
}

// Memory measures the present memory of the queue.
func (h *Hall) Memory(ctx context.Context) (m HallMemory, err error) {
	for _, room := range h.rooms {
		used, err := memoryOf(strconv.Itoa(room.server.process.command.Process.Pid))
		if err != nil {
			return m, err
		}
		if room.server.redis == nil {
			m.Embedded = used.Resident
			continue
		}
		m.Process = used.Resident
		info, err := room.server.redis.info(ctx)
		if err != nil {
			return m, err
		}
		m.Redis, m.RedisResident = int64(info["used_memory"]), int64(info["used_memory_rss"])
	}
	return m, nil
}
