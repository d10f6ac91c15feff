package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sluice-project/sluice/room"
)

// Enter gives a visitor a place, or the existing place of the key. The answer has a pass
// if a slot is free: Enter claims it, unless the visit is Provisional; then the state is
// Called, and the pass ends with the claim window. A wrong key is a *KeyError, a wrong token
// ErrBadToken, a wrong code ErrBadCode, a key without the token that it needs ErrNoToken, too many visitors from
// one address a *LimitError; ErrUninvited, ErrNotOpen, ErrEnded, ErrSoldOut and
// ErrLineFull are from the room.
func (e *Engine) Enter(ctx context.Context, name string, v room.Visit) (answer Answer, err error) {
	defer e.spans.visit(ctx, "join", name).end(&answer, &err)
	lane := ""
	if v.Code == "" {
		if v.Key, lane, err = e.whose(name, v); err != nil {
			return Answer{}, err
		}
	}
	limited := false
	err = e.operate(ctx, name, opEnter, func(op operation) error {
		s := &op.room.Settings
		if s.InvitationOnly && v.Key == "" && v.Code == "" {
			return ErrUninvited
		}
		if !limited {
			limited = true
			if after, ok := e.joins.allow(name, v.Client, joinBound(s, v), time.Now()); !ok {
				e.metrics.limited.Inc()
				return &LimitError{RetryAfter: after}
			}
		}
		number := s.LaneNumber(lane)
		if v.Code != "" { // after the bound of joins, which is one of guesses too
			code, err := op.room.readCode(v.Code, op.now)
			if err != nil {
				return err
			}
			v.Key, number = code.visitorKey(), s.LaneNumber(s.LaneName(code.lane))
		}
		ticket, arrival := arrive(op.room, v)
		arrival.Lane = number
		place, err := e.store.Enter(ctx, op.terms, arrival)
		if err != nil {
			return op.room.refusal(err)
		}
		ticket.Number = place.Number
		if answer, err = e.answer(&op, ticket, place); err != nil || place.State != room.Called || !place.Until.After(place.Now) {
			return err
		}
		return e.issuePass(&op, &answer, place, ticket.pass())
	})
	return answer, err
}

// MayEnter returns why no visitor without a key can enter a room now, as Enter would: ErrNotOpen,
// ErrEnded, ErrSoldOut, or ErrLineFull by the last count, if that is recent. It is for edges that
// ask for something first, and does not ask the store.
func (e *Engine) MayEnter(ctx context.Context, name string) error {
	op, err := e.begin(ctx, name)
	if err != nil {
		return err
	}
	waiting := int64(0)
	if m := op.cached.measured.Load(); m != nil && op.now.Sub(m.status.Now) < 2*outflowStep {
		waiting = m.status.Waiting
	}
	return op.room.refusal(op.terms.MayEnter(op.now.UnixMilli(), waiting))
}

// refusal returns why a visitor may not enter: an error of Terms.MayEnter, which does not know that
// the room has ended because it is sold out.
func (r *Room) refusal(err error) error {
	if _, why := r.closing(); errors.Is(err, room.ErrEnded) && why == room.SoldOut {
		return room.ErrSoldOut
	}
	return err
}

// arrive returns the ticket of a new visitor, without its number. The nonce of a visitor
// with a key is derived from it, so that the same ticket can be signed again.
func arrive(r *Room, v room.Visit) (Ticket, room.Arrival) {
	ticket := Ticket{Proven: v.Proven}
	arrival := room.Arrival{Provisional: v.Provisional}
	if v.Key == "" {
		ticket.Nonce = room.NewNonce()
	} else {
		ticket.Nonce = KeyNonce(r, v.Key)
		arrival.Key = HashKey(r, v.Key)
	}
	arrival.Fingerprint = ticket.fingerprint()
	if r.Settings.Method == room.Lottery {
		arrival.Draw = room.Draw(r.Seed, ticket.Nonce)
	}
	if r.Settings.BindTickets && v.Client.IsValid() {
		ticket.Client = ClientHash(v.Client)
	}
	return ticket, arrival
}

// Ask returns where a visitor is. A called visitor claims the slot by asking.
// ErrBadTicket if this room did not issue the ticket, or not to this client; a *GoneError
// if the place does not exist any more.
func (e *Engine) Ask(ctx context.Context, name, ticket string, client netip.Addr) (answer Answer, err error) {
	defer e.spans.visit(ctx, "ask", name).end(&answer, &err)
	err = e.operate(ctx, name, opAsk, func(op operation) error {
		parsed, err := e.parse(ctx, &op, ticket, client)
		if err != nil {
			return err
		}
		place, err := e.askOne(ctx, &op, parsed.bearer())
		if err != nil {
			return err
		}
		answer, err = e.answer(&op, parsed, place)
		return err
	})
	return answer, err
}

// askOne asks for a place with claim. A visitor who waits though there are free slots,
// having missed an earlier one, does not wait for the expiration's next look.
func (e *Engine) askOne(ctx context.Context, op *operation, bearer room.Bearer) (room.Place, error) {
	for again := true; ; again = false {
		places, err := e.store.Ask(ctx, op.terms, []room.Bearer{bearer}, true)
		if err != nil {
			return room.Place{}, err
		}
		if place := places[0]; !again || place.State != room.Waiting || !op.mayCall(place.Ahead) {
			return place, nil
		}
		if _, err := e.store.Expire(ctx, op.terms); err != nil {
			return room.Place{}, err
		}
	}
}

// mayCall reports whether a visitor with so many ahead can be called now, by the last
// count of the room.
func (op *operation) mayCall(ahead int64) bool {
	m := op.cached.measured.Load()
	return m != nil && op.terms.Tick == 0 && !op.now.Before(op.terms.From) && ahead < op.terms.Capacity-m.status.Inside
}

// Asker is one of many visitors who ask together; the ticket is a result of Parse.
type Asker struct{ Ticket Ticket }

// Result is the answer to one Asker.
type Result struct {
	Answer Answer
	Err    error
}

// AskAll is Ask for many visitors of a room, with the same errors in each result, in the
// order of the askers. Without claim, a called visitor gets the state Called, and claims
// nothing.
func (e *Engine) AskAll(ctx context.Context, name string, askers []Asker, claim bool) []Result {
	results := make([]Result, 0, len(askers))
	for some := range slices.Chunk(askers, room.MaxAsk) {
		results = append(results, e.askSome(ctx, name, some, claim)...)
	}
	return results
}

func (e *Engine) askSome(ctx context.Context, name string, askers []Asker, claim bool) []Result {
	bearers := make([]room.Bearer, 0, len(askers))
	results := make([]Result, len(askers))
	err := e.operate(ctx, name, opAskAll, func(op operation) error {
		bearers = bearers[:0]
		for i := range askers {
			if askers[i].Ticket.of(op.room) {
				bearers = append(bearers, askers[i].Ticket.bearer())
			}
		}
		var places []room.Place
		if len(bearers) > 0 {
			var err error
			if places, err = e.store.Ask(ctx, op.terms, bearers, claim); err != nil {
				return err
			}
		}
		for i := range askers {
			if !askers[i].Ticket.of(op.room) {
				results[i] = Result{Err: ErrBadTicket}
				continue
			}
			results[i].Answer, results[i].Err = e.answer(&op, askers[i].Ticket, places[0])
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
	op, err := e.begin(ctx, name)
	if err != nil {
		return Ticket{}, err
	}
	parsed, err := e.parse(ctx, &op, ticket, client)
	if err != nil {
		return Ticket{}, err
	}
	parsed.generation = op.room.Generation
	return parsed, nil
}

// Prove returns a ticket again, of a visitor who has passed a challenge.
func (e *Engine) Prove(ctx context.Context, name, ticket string, client netip.Addr) (string, error) {
	op, err := e.begin(ctx, name)
	if err != nil {
		return "", err
	}
	parsed, err := e.parse(ctx, &op, ticket, client)
	if err != nil {
		return "", err
	}
	parsed.Proven = true
	return op.ring.SignTicket(op.room, parsed), nil
}

// parse checks a ticket, and that it comes from the client that it is bound to.
func (e *Engine) parse(ctx context.Context, op *operation, text string, client netip.Addr) (Ticket, error) {
	ticket, err := e.parseFromAnyClient(ctx, op, text)
	if err != nil {
		return Ticket{}, err
	}
	op.shown, op.shownText = ticket, text
	if ticket.Client, err = bound(op.room, ticket.Client, client); err != nil {
		return Ticket{}, fmt.Errorf("%w: %w", ErrBadTicket, err)
	}
	return ticket, nil
}

// errOtherClient: a ticket or pass is bound to another client than the one that shows it.
var errOtherClient = errors.New("it was given to another client")

// bound returns the client that a ticket or pass is bound to from now on, where one that is
// bound to that client, if any, was shown by another one.
func bound(r *Room, to [4]byte, client netip.Addr) ([4]byte, error) {
	switch {
	case !r.Settings.BindTickets:
		return to, nil
	case to == [4]byte{}: // issued before the room bound any
		return ClientHash(client), nil
	case ClientHash(client) != to:
		return to, errOtherClient
	}
	return to, nil
}

// parseFromAnyClient checks a ticket, but not the client.
func (e *Engine) parseFromAnyClient(ctx context.Context, op *operation, text string) (Ticket, error) {
	return parseByKeys(ctx, e, op, text, (*Keyring).lacksKeyOfTicket, func(ring *Keyring) (Ticket, error) {
		return ring.ParseTicket(op.room, text)
	})
}

// Leave gives up a place, or ends a visit. It is idempotent.
func (e *Engine) Leave(ctx context.Context, name, ticket string, client netip.Addr) error {
	return e.operate(ctx, name, opLeave, func(op operation) error {
		parsed, err := e.parse(ctx, &op, ticket, client)
		if err != nil {
			return err
		}
		place, err := e.store.Leave(ctx, op.terms, parsed.bearer(), room.Left)
		if err == nil && place.State == room.Waiting {
			op.cached.gaveUp.add(place.Ahead)
		}
		return err
	})
}

// answer returns the answer to a visitor in that place.
func (e *Engine) answer(op *operation, ticket Ticket, place room.Place) (Answer, error) {
	op.cached.waited.see(&place)
	a := Answer{ID: place.Number, State: place.State, New: place.New, Proven: ticket.Proven}
	switch {
	case place.State == room.Gone:
		return Answer{}, &room.GoneError{Reason: place.Reason, ID: place.Number}
	case place.State == room.Waiting && whyClosed(op.room, place.Now) != "":
		return Answer{}, &room.GoneError{Reason: whyClosed(op.room, place.Now), ID: place.Number}
	case place.State == room.Inside:
		if err := e.issuePass(op, &a, place, ticket.pass()); err != nil {
			return Answer{}, err
		}
	}
	a.Ticket = op.sign(ticket)
	isDrawn := place.Drawn && drawn(op.room, place.Now)
	if isDrawn {
		number := room.Draw(op.room.Seed, ticket.Nonce)
		a.Draw = &number
	}
	if place.State == room.Waiting {
		a.Lane = op.room.Settings.LaneName(place.Lane)
	}
	if place.State == room.Waiting && (!place.Drawn || isDrawn) {
		a.Position = place.Ahead + 1
	}
	e.estimate(op, &a, place)
	return a, nil
}

// sign returns a ticket as text, signed with the newest key: that which the visitor has shown, if it is
// the same.
func (op *operation) sign(ticket Ticket) string {
	if ticket == op.shown && op.ring.newestSigned(op.shownText) {
		return op.shownText
	}
	return op.ring.SignTicket(op.room, ticket)
}

// checkKey returns a *KeyError if a text is no key of a visitor.
func checkKey(key string) error {
	switch {
	case len(key) > room.MaxVisitorKey:
		return &room.KeyError{Why: fmt.Sprintf("has %d bytes: a key has at most %d", len(key), room.MaxVisitorKey)}
	case !utf8.ValidString(key):
		return &room.KeyError{Why: "is not UTF-8"}
	}
	return nil
}
