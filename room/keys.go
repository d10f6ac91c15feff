package room

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// keysInterval is how often the keys are read again.
	keysInterval = 5 * time.Second
	// keysPause is the shortest time between two reads because of a ticket or pass
	// that no key known here has signed.
	keysPause = 100 * time.Millisecond
)

// keyHolder has the keys that sign tickets and passes, as the store has them.
type keyHolder struct {
	store Store
	held  atomic.Pointer[heldKeys]
	// loading lets one at a time read the keys. It guards when the keys were read for
	// the last time, and how that failed.
	loading chan struct{}
	tried   time.Time
	failed  error
}

type heldKeys struct {
	ring *Keyring
	keys []SigningKey
	read time.Time
}

func newKeyHolder(store Store) *keyHolder {
	return &keyHolder{store: store, loading: make(chan struct{}, 1)}
}

// ring returns the keys, those in memory if there are any.
func (h *keyHolder) ring(ctx context.Context) (*Keyring, error) {
	if held := h.held.Load(); held != nil {
		return held.ring, nil
	}
	if err := h.refresh(ctx, time.Now()); err != nil {
		return nil, err
	}
	return h.held.Load().ring, nil
}

// newer returns the keys read again, for something was signed with another: at
// most every keysPause, so that forgeries do not make the store busy. Who comes
// earlier waits, so that a key of another instance holds at once.
func (h *keyHolder) newer(ctx context.Context) (*Keyring, error) {
	asked := time.Now()
	if held := h.held.Load(); held != nil {
		if left := keysPause - asked.Sub(held.read); left > 0 && !lifecycle.Sleep(ctx, nil, left) {
			return nil, ctx.Err()
		}
	}
	if err := h.refresh(ctx, asked); err != nil {
		return nil, err
	}
	return h.held.Load().ring, nil
}

// refresh reads the keys, unless that was begun after a time: of many who want it at once
// one reads for all, also while the store does not answer. It makes the first key if
// there is none.
func (h *keyHolder) refresh(ctx context.Context, after time.Time) error {
	unlock, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if held := h.held.Load(); held != nil && held.read.After(after) {
		return nil
	}
	if h.tried.After(after) && h.failed != nil {
		return h.failed
	}
	tried := time.Now()
	err = h.load(ctx)
	if ctx.Err() == nil { // otherwise it is the caller's failure, not the store's
		h.tried, h.failed = tried, err
	}
	return err
}

// load reads the keys. The lock is held.
func (h *keyHolder) load(ctx context.Context) error {
	for range maxTurns {
		read := time.Now()
		keys, err := h.store.Keys(ctx)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			return h.hold(keys, read)
		}
		if err := h.makeFirst(ctx); err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
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
	return h.store.PutKeys(ctx, []SigningKey{key}, "")
}

func (h *keyHolder) hold(keys []SigningKey, read time.Time) error {
	if held := h.held.Load(); held != nil && sameKeys(held.keys, keys) {
		h.held.Store(&heldKeys{held.ring, held.keys, read})
		return nil
	}
	ring, err := NewKeyring(keys)
	if err != nil {
		return err
	}
	h.held.Store(&heldKeys{ring, keys, read})
	return nil
}

func sameKeys(a, b []SigningKey) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID {
			return false
		}
	}
	return true
}

// rotate adds a key, which signs from now on.
func (h *keyHolder) rotate(ctx context.Context) error {
	unlock, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for range maxTurns {
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
		keys, err := Rotate(seen, fresh, now)
		if err != nil {
			return err
		}
		if err = h.store.PutKeys(ctx, keys, seen[len(seen)-1].ID); err == nil {
			return h.hold(keys, time.Now())
		} else if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
}

// lacksKeyOfTicket tells whether a text has the form of a ticket, by a key that is
// not in the ring.
func (k *Keyring) lacksKeyOfTicket(text string) bool {
	if len(text) > maxTicketText {
		return false
	}
	body, err := ticketText.DecodeString(text)
	return err == nil && len(body) >= ticketBody && body[0] == ticketVersion && k.keys[binary.BigEndian.Uint32(body[1:])] == nil
}

// lacksKeyOfPass tells whether a text has the form of a pass, by a key that is not
// in the ring.
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

func (h *keyHolder) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case h.loading <- struct{}{}:
		return func() { <-h.loading }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// RotateKeys makes a new key, with which tickets and passes are signed from now
// on. Those signed before stay good, at every instance. ErrRingFull if that was
// done too often.
func (e *Engine) RotateKeys(ctx context.Context) error { return e.keys.rotate(ctx) }

// JWKS returns the public keys of passes, as a JSON Web Key Set.
func (e *Engine) JWKS(ctx context.Context) ([]byte, error) {
	ring, err := e.keys.ring(ctx)
	if err != nil {
		return nil, err
	}
	return ring.JWKS(), nil
}

// refreshKeys reads the keys now and then.
func (e *Engine) refreshKeys(ctx context.Context) error {
	return e.regularly(ctx, "read the keys", keysInterval, func() error {
		return e.keys.refresh(ctx, time.Now())
	})
}
