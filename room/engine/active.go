package engine

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/room"
)

// passStep is how long the same pass is handed out again.
const passStep = 5 * time.Second

// issuePass puts a pass into the answer to a visitor who is inside: of the client and the
// fingerprint of an earlier pass, or of the ticket. A visit that has ended gets none, though
// it may hold its slot for a moment longer.
func (e *Engine) issuePass(op *operation, a *Answer, place room.Place, of Pass) error {
	if !place.Until.After(place.Now) {
		return &room.GoneError{Reason: room.Expired, ID: place.Number}
	}
	// Truncated, so that a visitor who asks again soon gets the same pass: signing is the
	// most expensive part of an answer.
	issued := place.Now.Truncate(passStep)
	if issued.Before(place.Since) {
		issued = place.Since.Truncate(time.Second)
	}
	expires := issued.Add(MaxPassLife)
	if place.Until.Before(expires) {
		expires = place.Until
	}
	// Some services that check passes take whole seconds only. The pass of a shorter visit
	// has to be exact.
	if whole := expires.Truncate(time.Second); whole.Sub(place.Now) >= time.Second {
		expires = whole
	}
	pass, err := op.ring.SignPass(op.room, Pass{
		Room: op.room.Name, Generation: op.room.Generation, Number: place.Number, Epoch: op.room.Epoch,
		IssuedAt: issued, ExpiresAt: expires, Client: of.Client, Fingerprint: of.Fingerprint, Proven: a.Proven,
	})
	if err != nil {
		return fmt.Errorf("sign the pass of visitor %s: %w", strconv.FormatInt(place.Number, 10), err)
	}
	a.Pass, a.PassExpiresAt = pass, place.Until
	return nil
}

// AskPass checks a pass, and extends it if it is sliding; the answer has a fresh pass,
// and no ticket. It returns ErrBadPass for a pass that this room did not issue, or that
// has ended, or was given to another client, and a *GoneError for one that was revoked, or
// whose visitor is not inside any more.
func (e *Engine) AskPass(ctx context.Context, name, pass string, client netip.Addr) (answer Answer, err error) {
	defer e.spans.visit(ctx, "pass", name).end(&answer, &err)
	err = e.operate(ctx, name, opAskPass, func(op operation) error {
		parsed, err := e.parsePass(ctx, &op, pass, op.now)
		if err != nil {
			return err
		}
		if parsed.Epoch < op.room.Epoch {
			return &room.GoneError{Reason: room.Revoked, ID: parsed.Number}
		}
		if parsed.Client, err = bound(op.room, parsed.Client, client); err != nil {
			return fmt.Errorf("%w: %w", ErrBadPass, err)
		}
		places, err := e.store.Ask(ctx, op.terms, []room.Bearer{parsed.bearer()}, true)
		if err != nil {
			return err
		}
		place := places[0]
		if place.State == room.Gone {
			return &room.GoneError{Reason: place.Reason, ID: place.Number}
		}
		if place.State != room.Inside || parsed.Epoch > op.room.Epoch { // the store has lost acknowledged operations
			return ErrBadPass
		}
		answer = Answer{ID: place.Number, State: room.Inside, Proven: parsed.Proven}
		if err := e.issuePass(&op, &answer, place, parsed); err != nil {
			return err
		}
		e.estimate(&op, &answer, place)
		return nil
	})
	return answer, err
}

// parsePass checks a pass. With a zero now it may have expired.
func (e *Engine) parsePass(ctx context.Context, op *operation, text string, now time.Time) (Pass, error) {
	return parseByKeys(ctx, e, op, text, (*Keyring).lacksKeyOfPass, func(ring *Keyring) (Pass, error) {
		return ring.ParsePass(op.room, text, now)
	})
}

// Renew gives a fixed pass its whole time again, from now on; ErrNotRenewable if it may
// not be renewed, or not again. A visitor who is not inside gets its place.
func (e *Engine) Renew(ctx context.Context, name, ticket string, client netip.Addr) (answer Answer, err error) {
	defer e.spans.visit(ctx, "renew", name).end(&answer, &err)
	err = e.operate(ctx, name, opRenew, func(op operation) error {
		parsed, err := e.parse(ctx, &op, ticket, client)
		if err != nil {
			return err
		}
		place, err := e.store.Renew(ctx, op.terms, parsed.bearer())
		if err != nil {
			return err
		}
		answer, err = e.answer(&op, parsed, place)
		return err
	})
	return answer, err
}

// LeavePass ends the visit of a pass, so that the next visitor may come in. The pass
// itself may have expired, since it lasts shorter than the visit.
func (e *Engine) LeavePass(ctx context.Context, name, pass string) error {
	return e.operate(ctx, name, opLeave, func(op operation) error {
		parsed, err := e.parsePass(ctx, &op, pass, time.Time{})
		if err != nil {
			return err
		}
		_, err = e.store.Leave(ctx, op.terms, parsed.bearer(), room.Left)
		return err
	})
}

// RevokeTicket ends the visit, or the wait, of a ticket's visitor; ErrNoVisitor if it is
// gone already.
func (e *Engine) RevokeTicket(ctx context.Context, name, ticket string) error {
	return e.operate(ctx, name, opRevoke, func(op operation) error {
		parsed, err := e.parseFromAnyClient(ctx, &op, ticket)
		if err != nil {
			return err
		}
		return e.revoke(ctx, &op, parsed.bearer())
	})
}

// RevokeVisitor ends the visit, or the wait, of the visitor with a key; ErrNoVisitor if
// none waits or is inside.
func (e *Engine) RevokeVisitor(ctx context.Context, name, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if key == "" {
		return &room.KeyError{Why: "is empty"}
	}
	return e.operate(ctx, name, opRevoke, func(op operation) error {
		number, err := e.store.Find(ctx, op.terms, HashKey(op.room, key))
		if err != nil {
			return err
		}
		if number == 0 {
			return room.ErrNoVisitor
		}
		return e.revoke(ctx, &op, room.Bearer{Number: number})
	})
}

func (e *Engine) revoke(ctx context.Context, op *operation, bearer room.Bearer) error {
	place, err := e.store.Leave(ctx, op.terms, bearer, room.Revoked)
	if err == nil && place.State == room.Gone {
		return room.ErrNoVisitor
	}
	return err
}

// RevokeAll ends the visits of all visitors inside; Sluice refuses their passes from then
// on. Visitors in line keep their places. It is idempotent.
func (e *Engine) RevokeAll(ctx context.Context, name string) error {
	if _, err := e.changeExisting(ctx, name, func(r *Room) { r.Epoch++ }); err != nil {
		return err
	}
	return e.operate(ctx, name, opRevoke, func(op operation) error { return e.store.Clear(ctx, op.terms) })
}
