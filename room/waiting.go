package room

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"
)

// Visit is who enters.
type Visit struct {
	// Key is what tells one person from another, a user's id for example: with it
	// one person has one place. Optional; at most MaxVisitorKey bytes.
	Key string
	// Client is the address that the visitor comes from, for the limit of joins and
	// for tickets that are bound; invalid if it is not known.
	Client netip.Addr
}

// Enter gives a visitor a place, or its place if the key has one. The answer has a
// pass if the room has a slot for it: it is claimed then. A key that is wrong is
// a *KeyError, too many visitors from one address a *LimitError; ErrNotOpen,
// ErrEnded and ErrLineFull are the room's.
func (e *Engine) Enter(ctx context.Context, name string, v Visit) (answer Answer, err error) {
	if err := checkKey(v.Key); err != nil {
		return Answer{}, err
	}
	limited := false
	err = e.move(ctx, name, "enter", func(t turn) error {
		s := &t.room.Settings
		if !limited && s.JoinsPerMinute > 0 && v.Client.IsValid() {
			limited = true
			if after, ok := t.known.joins.allow(v.Client, s.JoinsPerMinute, time.Now()); !ok {
				return &LimitError{RetryAfter: after}
			}
		}
		ticket, arrival := arrive(t.room, v)
		place, err := e.store.Enter(ctx, t.terms, arrival)
		if err != nil {
			return err
		}
		if t.known.idle.CompareAndSwap(true, false) && shortestWindow(s) < idleInterval {
			t.known.rouse()
		}
		ticket.Number = place.Number
		answer, err = e.answer(&t, ticket, place)
		return err
	})
	return answer, err
}

func checkKey(key string) error {
	switch {
	case len(key) > MaxVisitorKey:
		return &KeyError{fmt.Sprintf("has %d bytes: a key has at most %d", len(key), MaxVisitorKey)}
	case !utf8.ValidString(key):
		return &KeyError{"is not UTF-8"}
	}
	return nil
}

// arrive makes the ticket of who enters, the number apart. The nonce of who has a
// key follows from it, so that the same ticket can be signed again.
func arrive(r *Room, v Visit) (Ticket, Arrival) {
	var ticket Ticket
	var arrival Arrival
	if v.Key == "" {
		ticket.Nonce = NewNonce()
	} else {
		ticket.Nonce = KeyNonce(r, v.Key)
		arrival.Key = HashKey(r, v.Key)
	}
	if r.Settings.Method == Lottery {
		arrival.Draw = Draw(r.Seed, ticket.Nonce)
	}
	if r.Settings.BindTickets && v.Client.IsValid() {
		ticket.Client = ClientHash(v.Client)
	}
	return ticket, arrival
}

// Ask tells a visitor where it is. Who is called claims the slot by asking. A
// ticket that this room did not give, or not to this client, is ErrBadTicket; a
// place that does not exist any more is a *GoneError.
func (e *Engine) Ask(ctx context.Context, name, ticket string, client netip.Addr) (answer Answer, err error) {
	err = e.move(ctx, name, "ask", func(t turn) error {
		parsed, err := e.parse(ctx, &t, ticket, client)
		if err != nil {
			return err
		}
		places, err := e.store.Ask(ctx, t.terms, []int64{parsed.Number}, true)
		if err != nil {
			return err
		}
		answer, err = e.answer(&t, parsed, places[0])
		return err
	})
	return answer, err
}

// Asker is one of many who ask at once; the ticket is one that Parse returned.
type Asker struct{ Ticket Ticket }

// Result is what one of many is told.
type Result struct {
	Answer Answer
	Err    error
}

// AskAll is Ask for many visitors of a room, with the same errors in each result;
// the results are in the order of the askers. Without claim, who is called is told
// so, in state Called, and claims nothing.
func (e *Engine) AskAll(ctx context.Context, name string, askers []Asker, claim bool) []Result {
	results := make([]Result, 0, len(askers))
	for some := range slices.Chunk(askers, MaxAsk) {
		results = append(results, e.askSome(ctx, name, some, claim)...)
	}
	return results
}

func (e *Engine) askSome(ctx context.Context, name string, askers []Asker, claim bool) []Result {
	numbers := make([]int64, 0, len(askers))
	results := make([]Result, len(askers))
	err := e.move(ctx, name, "ask_all", func(t turn) error {
		numbers = numbers[:0]
		for i := range askers {
			if askers[i].Ticket.of(t.room) {
				numbers = append(numbers, askers[i].Ticket.Number)
			}
		}
		var places []Place
		if len(numbers) > 0 {
			var err error
			if places, err = e.store.Ask(ctx, t.terms, numbers, claim); err != nil {
				return err
			}
		}
		for i := range askers {
			if !askers[i].Ticket.of(t.room) {
				results[i] = Result{Err: ErrBadTicket}
				continue
			}
			results[i].Answer, results[i].Err = e.answer(&t, askers[i].Ticket, places[0])
			places = places[1:]
		}
		return nil
	})
	if err != nil {
		for i := range results {
			results[i] = Result{Err: err}
		}
	}
	return results
}

// Parse checks a ticket without asking for the place.
func (e *Engine) Parse(ctx context.Context, name, ticket string, client netip.Addr) (Ticket, error) {
	t, err := e.turn(ctx, name)
	if err != nil {
		return Ticket{}, err
	}
	parsed, err := e.parse(ctx, &t, ticket, client)
	if err != nil {
		return Ticket{}, err
	}
	parsed.generation = t.room.Generation
	return parsed, nil
}

// parse checks a ticket, and that it comes from the client that it is bound to.
func (e *Engine) parse(ctx context.Context, t *turn, text string, client netip.Addr) (Ticket, error) {
	ticket, err := e.parseFromAnywhere(ctx, t, text)
	if err != nil || !t.room.Settings.BindTickets || ticket.Client == [4]byte{} {
		return ticket, err
	}
	if !client.IsValid() || ClientHash(client) != ticket.Client {
		return Ticket{}, fmt.Errorf("%w: it was given to another client", ErrBadTicket)
	}
	return ticket, nil
}

func (e *Engine) parseFromAnywhere(ctx context.Context, t *turn, text string) (Ticket, error) {
	ticket, err := t.ring.ParseTicket(t.room, text)
	if err == nil || !t.ring.lacksKeyOfTicket(text) {
		return ticket, err
	}
	ring, failed := e.keys.newer(ctx)
	if failed != nil {
		return Ticket{}, failed
	}
	t.ring = ring
	return ring.ParseTicket(t.room, text)
}

// Leave gives a place up, or a visit. One that is gone already is no error.
func (e *Engine) Leave(ctx context.Context, name, ticket string, client netip.Addr) error {
	return e.move(ctx, name, "leave", func(t turn) error {
		parsed, err := e.parse(ctx, &t, ticket, client)
		if err != nil {
			return err
		}
		_, err = e.store.Leave(ctx, t.terms, parsed.Number, Left)
		return err
	})
}

// answer is what a visitor is told of its place.
func (e *Engine) answer(t *turn, ticket Ticket, place Place) (Answer, error) {
	a := Answer{ID: place.Number, State: place.State, New: place.New}
	switch {
	case place.State == Gone:
		return Answer{}, &GoneError{place.Reason, place.Number}
	case place.State == Waiting && ended(t.room, place.Now):
		return Answer{}, &GoneError{Ended, place.Number}
	case place.State == Inside:
		if err := e.admit(t, &a, place); err != nil {
			return Answer{}, err
		}
	}
	a.Ticket = t.ring.SignTicket(t.room, ticket)
	isDrawn := place.Drawn && drawn(t.room, place.Now)
	if isDrawn {
		number := Draw(t.room.Seed, ticket.Nonce)
		a.Draw = &number
	}
	if place.State == Waiting && (!place.Drawn || isDrawn) {
		a.Position = place.Ahead + 1
	}
	e.expect(t, &a, place)
	return a, nil
}
