package room

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// passStep is for how long one pass is handed out again.
const passStep = 5 * time.Second

// admit puts a pass into the answer of who is inside. A visit that has ended
// is over, though it may hold its slot for a moment longer.
func (e *Engine) admit(t *turn, a *Answer, place Place) error {
	if !place.Until.After(place.Now) {
		return &GoneError{Expired, place.Number}
	}
	// Not of this very moment, so that who asks again soon gets the same: signing is
	// dearer than all else that an answer takes.
	issued := place.Now.Truncate(passStep)
	if issued.Before(place.Since) {
		issued = place.Since.Truncate(time.Second)
	}
	expires := issued.Add(MaxPassLife)
	if place.Until.Before(expires) {
		expires = place.Until
	}
	// Some who check passes take whole seconds only. Of a visit shorter than that the
	// pass has to be exact.
	if whole := expires.Truncate(time.Second); whole.Sub(place.Now) >= time.Second {
		expires = whole
	}
	pass, err := t.ring.SignPass(t.room, Pass{
		Room: t.room.Name, Generation: t.room.Generation, Number: place.Number, Epoch: t.room.Epoch,
		IssuedAt: issued, ExpiresAt: expires,
	})
	if err != nil {
		return fmt.Errorf("sign the pass of visitor %s: %w", strconv.FormatInt(place.Number, 10), err)
	}
	a.Pass, a.PassExpiresAt = pass, place.Until
	return nil
}

// AskPass tells who has a pass whether it is still good, and prolongs it if it is
// sliding; the answer has a fresh pass, and no ticket. A pass that this room did not
// give, or that ended, is ErrBadPass; that of a visitor who is not inside any more,
// or that was revoked, is a *GoneError.
func (e *Engine) AskPass(ctx context.Context, name, pass string) (answer Answer, err error) {
	err = e.move(ctx, name, "ask_pass", func(t turn) error {
		parsed, err := e.parsePass(ctx, &t, pass, t.now)
		if err != nil {
			return err
		}
		if parsed.Epoch < t.room.Epoch {
			return &GoneError{Revoked, parsed.Number}
		}
		places, err := e.store.Ask(ctx, t.terms, []int64{parsed.Number}, true)
		if err != nil {
			return err
		}
		place := places[0]
		if place.State == Gone {
			return &GoneError{place.Reason, place.Number}
		}
		if place.State != Inside || parsed.Epoch > t.room.Epoch { // the store has lost what it was told
			return ErrBadPass
		}
		answer = Answer{ID: place.Number, State: Inside}
		if err := e.admit(&t, &answer, place); err != nil {
			return err
		}
		e.expect(&t, &answer, place)
		return nil
	})
	return answer, err
}

// parsePass checks a pass. With a zero now it may have expired.
func (e *Engine) parsePass(ctx context.Context, t *turn, text string, now time.Time) (Pass, error) {
	pass, err := t.ring.ParsePass(t.room, text, now)
	if err == nil || !t.ring.lacksKeyOfPass(text) {
		return pass, err
	}
	ring, failed := e.keys.newer(ctx)
	if failed != nil {
		return Pass{}, failed
	}
	t.ring = ring
	return ring.ParsePass(t.room, text, now)
}

// Renew gives a fixed pass its whole time again, from now on; ErrNotRenewable if
// it may not be, or not once more. Who is not inside is told where it is.
func (e *Engine) Renew(ctx context.Context, name, ticket string, client netip.Addr) (answer Answer, err error) {
	err = e.move(ctx, name, "renew", func(t turn) error {
		parsed, err := e.parse(ctx, &t, ticket, client)
		if err != nil {
			return err
		}
		place, err := e.store.Renew(ctx, t.terms, parsed.Number)
		if err != nil {
			return err
		}
		answer, err = e.answer(&t, parsed, place)
		return err
	})
	return answer, err
}

// LeavePass ends the visit of a pass: the next visitor may come in. The pass itself
// may have expired: it is short-lived, the visit is not.
func (e *Engine) LeavePass(ctx context.Context, name, pass string) error {
	return e.move(ctx, name, "leave", func(t turn) error {
		parsed, err := e.parsePass(ctx, &t, pass, time.Time{})
		if err != nil {
			return err
		}
		_, err = e.store.Leave(ctx, t.terms, parsed.Number, Left)
		return err
	})
}

// RevokeTicket ends the visit, or the wait, of who has a ticket; ErrNoVisitor if
// it is gone already.
func (e *Engine) RevokeTicket(ctx context.Context, name, ticket string) error {
	return e.move(ctx, name, "revoke", func(t turn) error {
		parsed, err := e.parseFromAnywhere(ctx, &t, ticket)
		if err != nil {
			return err
		}
		return e.revoke(ctx, &t, parsed.Number)
	})
}

// RevokeVisitor ends the visit, or the wait, of who has a key; ErrNoVisitor if
// nobody of that key waits or is inside.
func (e *Engine) RevokeVisitor(ctx context.Context, name, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if key == "" {
		return &KeyError{"is empty"}
	}
	return e.move(ctx, name, "revoke", func(t turn) error {
		number, err := e.store.Find(ctx, t.terms, HashKey(t.room, key))
		if err != nil {
			return err
		}
		if number == 0 {
			return ErrNoVisitor
		}
		return e.revoke(ctx, &t, number)
	})
}

func (e *Engine) revoke(ctx context.Context, t *turn, number int64) error {
	place, err := e.store.Leave(ctx, t.terms, number, Revoked)
	if err == nil && place.State == Gone {
		return ErrNoVisitor
	}
	return err
}

// RevokeAll ends the visits of all who are inside; their passes are void at once
// wherever Sluice is asked. Those in line keep their places. After an error it may
// be called again.
func (e *Engine) RevokeAll(ctx context.Context, name string) error {
	if _, err := e.changeExisting(ctx, name, func(r *Room) { r.Epoch++ }); err != nil {
		return err
	}
	return e.move(ctx, name, "revoke", func(t turn) error { return e.store.Clear(ctx, t.terms) })
}
