package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

// keysInterval is how often the keys are read again.
const keysInterval = 5 * time.Second

// keyHolder caches the store's keys that sign tickets and passes.
type keyHolder struct {
	store room.Store
	held  atomic.Pointer[heldKeys]
	reads *sharedRead
}

type heldKeys struct {
	ring *Keyring
	keys []room.SigningKey
}

func newKeyHolder(store room.Store) *keyHolder {
	h := &keyHolder{store: store}
	h.reads = newSharedRead(h.load)
	return h
}

// ring returns the keys, from memory if they are there.
func (h *keyHolder) ring(ctx context.Context) (*Keyring, error) {
	if held := h.held.Load(); held != nil {
		return held.ring, nil
	}
	if err := h.reads.after(ctx, time.Now()); err != nil {
		return nil, err
	}
	return h.held.Load().ring, nil
}

// newer reads the keys again, because something was signed with an unknown key: another
// instance may have made it.
func (h *keyHolder) newer(ctx context.Context) (*Keyring, error) {
	if err := h.reads.missed(ctx); err != nil {
		return nil, err
	}
	return h.held.Load().ring, nil
}

// load reads the keys, and creates the first key if there is none. The lock is held.
func (h *keyHolder) load(ctx context.Context) error {
	for range maxAttempts {
		keys, err := h.store.Keys(ctx)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			return h.hold(keys)
		}
		if err := h.makeFirst(ctx); err != nil && !errors.Is(err, room.ErrConflict) {
			return err
		}
	}
	return room.ErrConflict
}

func (h *keyHolder) makeFirst(ctx context.Context) error {
	now, err := h.store.Now(ctx)
	if err != nil {
		return err
	}
	key, err := NewSigningKey(now)
	if err != nil {
		return err
	}
	return h.store.PutKeys(ctx, []room.SigningKey{key}, "")
}

func (h *keyHolder) hold(keys []room.SigningKey) error {
	if held := h.held.Load(); held != nil && sameKeys(held.keys, keys) {
		return nil
	}
	ring, err := NewKeyring(keys)
	if err != nil {
		return err
	}
	h.held.Store(&heldKeys{ring, keys})
	return nil
}

func sameKeys(a, b []room.SigningKey) bool {
	return slices.EqualFunc(a, b, func(x, y room.SigningKey) bool { return x.ID == y.ID })
}

// rotation returns the keys that follow others, with a fresh one, which signs from then on.
type rotation func(keys []room.SigningKey, fresh room.SigningKey, now time.Time) ([]room.SigningKey, error)

// rotate replaces the keys.
func (h *keyHolder) rotate(ctx context.Context, next rotation) error {
	unlock, err := h.reads.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for range maxAttempts {
		if err := h.load(ctx); err != nil {
			return err
		}
		now, err := h.store.Now(ctx)
		if err != nil {
			return err
		}
		fresh, err := NewSigningKey(now)
		if err != nil {
			return err
		}
		seen := h.held.Load().keys
		keys, err := next(seen, fresh, now)
		if err != nil {
			return err
		}
		if err = h.store.PutKeys(ctx, keys, seen[len(seen)-1].ID); err == nil {
			return h.hold(keys)
		} else if !errors.Is(err, room.ErrConflict) {
			return err
		}
	}
	return room.ErrConflict
}

// parseByKeys parses a text with the keys in memory and, if it was signed with an unknown
// key, again with those of the store.
func parseByKeys[T any](
	ctx context.Context, e *Engine, op *operation, text string, lacksKey func(*Keyring, string) bool, parse func(*Keyring) (T, error),
) (T, error) {
	parsed, err := parse(op.ring)
	if err == nil || !lacksKey(op.ring, text) {
		return parsed, err
	}
	ring, failed := e.keys.newer(ctx)
	if failed != nil {
		return parsed, failed
	}
	op.ring = ring
	return parse(ring)
}

// lacksKeyOfTicket reports whether a text has the form of a ticket, signed with a key
// that is not in the ring.
func (k *Keyring) lacksKeyOfTicket(text string) bool {
	if len(text) > maxTicketText {
		return false
	}
	body, err := ticketText.DecodeString(text)
	return err == nil && len(body) >= ticketBody && (body[0] == ticketVersion || body[0] == ticketProven) && k.keys[binary.BigEndian.Uint32(body[1:])] == nil
}

// lacksKeyOfPass reports whether a text has the form of a pass, signed with a key that is
// not in the ring.
func (k *Keyring) lacksKeyOfPass(text string) bool {
	if len(text) > maxPassText {
		return false
	}
	token, _, err := passParser.ParseUnverified(text, new(passClaims))
	if err != nil {
		return false
	}
	kid, _ := token.Header["kid"].(string)
	id, ok := parseKeyID(kid)
	return ok && k.keys[id] == nil
}

// RotateKeys creates a new key, which signs tickets and passes from now on. Earlier ones
// stay valid, at every instance. ErrRingFull if keys were rotated too often.
func (e *Engine) RotateKeys(ctx context.Context) error { return e.keys.rotate(ctx, Rotate) }

// RevokeKeys creates a new key and drops all others, which may have been stolen: what they
// signed is not valid any more, at other instances within 5 s. Visitors with a key enter
// again and have their places; others have to queue again.
func (e *Engine) RevokeKeys(ctx context.Context) error {
	return e.keys.rotate(ctx, func(_ []room.SigningKey, fresh room.SigningKey, _ time.Time) ([]room.SigningKey, error) {
		return []room.SigningKey{fresh}, nil
	})
}

// JWKS returns the public keys of passes, as a JSON Web Key Set.
func (e *Engine) JWKS(ctx context.Context) ([]byte, error) {
	ring, err := e.keys.ring(ctx)
	if err != nil {
		return nil, err
	}
	return ring.JWKS(), nil
}

// refreshKeys reads the keys every keysInterval.
func (e *Engine) refreshKeys(ctx context.Context) error {
	return e.regularly(ctx, "read the keys", keysInterval, func() error {
		return e.keys.reads.after(ctx, time.Now())
	})
}
