package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

const (
	// idsMax bounds the transactional ids; idRetention is how long an unused one is kept.
	idsMax      = 10_000
	idRetention = 7 * 24 * time.Hour
	// endWait is how long a request waits until a transaction has ended everywhere.
	endWait = time.Second
	// storeTimeout bounds one change in the metadata.
	storeTimeout = 10 * time.Second
)

// Parts are the parts of a transaction outside of its record. All methods may be called
// again after an error, and after success too.
type Parts interface {
	// Mark ends a transaction in a partition.
	Mark(ctx context.Context, topic string, partition int32, m Marker) error
	// CommitOffsets commits the offsets of a group, if the outcome that m names is still the
	// last change of its record.
	CommitOffsets(ctx context.Context, group string, offsets Offsets, m Marker) error
	// NewProducerID returns a producer id that nobody has had.
	NewProducerID(ctx context.Context) (int64, error)
	// Coordinates reports whether this node ends the transactions of an id that nobody ends.
	Coordinates(id string) bool
	// Writable returns the guards of each change, or why none may be made.
	Writable() ([]topic.Guard, error)
}

// Coordinator coordinates transactions on one node.
type Coordinator struct {
	meta  topic.Meta
	parts Parts
	log   *slog.Logger
	group *lifecycle.Group

	mu     sync.Mutex
	ending map[decision]chan struct{} // closed when this node has ended the transaction
	known  map[string]known           // by key; see Each
}

// New returns a coordinator that is not started.
func New(meta topic.Meta, parts Parts, log *slog.Logger) *Coordinator {
	return &Coordinator{
		meta: meta, parts: parts, log: log, group: lifecycle.NewGroup(context.Background()),
		ending: map[decision]chan struct{}{}, known: map[string]known{},
	}
}

// Start begins to end transactions that have timed out, or were left by other nodes.
func (c *Coordinator) Start() { c.group.Go("end transactions", c.sweep) }

// Stop stops that. Decided transactions are ended after the next start, or by other nodes.
func (c *Coordinator) Stop(ctx context.Context) error { return c.group.Stop(ctx) }

func checkID(id string) error {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) {
		return fmt.Errorf("%w: transactional id of %d bytes, want 1 to %d of UTF-8", ErrInvalid, len(id), maxID)
	}
	return nil
}

// read returns a transaction as this node knows it, with its revision; zero if there is none.
func (c *Coordinator) read(ctx context.Context, id string) (t Transaction, revision uint64, err error) {
	item, err := catalog.Get(ctx, c.meta, Prefix+id)
	if err == nil && item.Revision != 0 {
		t, err = decode(item)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return t, item.Revision, err
}

// change changes a transaction, with compare-and-set, and returns it with its revision.
// This node may not know the last one: so an error, or that nothing is to be changed,
// counts only after a Sync.
func (c *Coordinator) change(ctx context.Context, id string, transition func(t *Transaction) error, guards ...topic.Guard) (t Transaction, revision uint64, err error) {
	if err := checkID(id); err != nil {
		return t, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for synced := false; ; synced = true {
		writable, err := c.parts.Writable()
		if err != nil {
			return t, 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if t, revision, err = c.read(ctx, id); err != nil {
			return t, 0, err
		}
		before, _ := t.encode()
		failed := transition(&t)
		value, err := t.encode()
		if failed = errors.Join(failed, err); failed == nil && (revision == 0 || !bytes.Equal(before, value)) {
			t.ChangedMS = time.Now().UnixMilli()
			value, _ = t.encode()
			revision, failed = c.meta.Put(ctx, Prefix+id, value, revision, append(guards, writable...)...)
			if failed == nil {
				return t, revision, nil
			}
			if !catalog.Uncertain(failed) {
				return t, 0, fmt.Errorf("%w: %w", ErrUnavailable, failed)
			}
			if len(guards) > 0 { // the caller decides whether they still hold
				return t, 0, fmt.Errorf("%w: %w", ErrUnavailable, failed)
			}
			synced = false
		}
		if synced {
			return t, revision, failed
		}
		if err := c.meta.Sync(ctx); err != nil {
			return t, 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// Init gives a transactional id to a producer, and ends the transaction of the producer
// that had it. Expected is the producer that the client has, nil for a new one. Errors:
// ErrInvalid, ErrTimeout, ErrFenced, ErrUnknownProducer, ErrConcurrent, ErrFull,
// ErrUnavailable.
func (c *Coordinator) Init(ctx context.Context, id string, timeout time.Duration, expected *Producer) (Producer, error) {
	if timeout <= 0 || timeout > MaxTimeout {
		return Producer{}, fmt.Errorf("%w: %v, want more than 0s, at most %v", ErrTimeout, timeout, MaxTimeout)
	}
	for begun := time.Now(); ; {
		ended := false
		t, revision, err := c.change(ctx, id, func(t *Transaction) (err error) {
			if t.State == "" {
				if err := c.hasRoom(ctx); err != nil {
					return err
				}
			}
			ended, err = t.initialize(time.Now(), timeout, expected, func() (int64, error) { return c.parts.NewProducerID(ctx) })
			return err
		})
		if err != nil || ended {
			return t.Producer, err
		}
		if time.Since(begun) >= endWait || !c.awaitEnd(ctx, id, t, revision) {
			return Producer{}, ErrConcurrent
		}
	}
}

// hasRoom returns an error if there can be no further transactional id.
func (c *Coordinator) hasRoom(ctx context.Context) error {
	items, err := c.meta.List(ctx, Prefix)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if len(items) >= idsMax {
		return fmt.Errorf("%w: there are %d transactional ids, the most; one that is not used is forgotten after %v", ErrFull, idsMax, idRetention)
	}
	return nil
}

// AddPartitions adds partitions to the transaction of a producer, which begins with the
// first ones. Errors: ErrInvalid, ErrFenced, ErrUnknownProducer, ErrConcurrent, ErrFull,
// ErrUnavailable.
func (c *Coordinator) AddPartitions(ctx context.Context, id string, p Producer, partitions map[string][]int32) error {
	_, _, err := c.change(ctx, id, func(t *Transaction) error { return t.addPartitions(p, partitions, time.Now()) })
	return err
}

// AddGroup adds a group whose offsets the transaction will commit; errors as AddPartitions.
func (c *Coordinator) AddGroup(ctx context.Context, id string, p Producer, group string) error {
	_, _, err := c.change(ctx, id, func(t *Transaction) error { return t.addGroup(p, group, time.Now()) })
	return err
}

// AddOffsets adds offsets of a group that was added; with begins it adds the group too. They
// are committed with the transaction. The guard is of the group's generation: if it does not hold, the error is an
// ErrUnavailable, and an ErrConflict. Other errors: as AddPartitions, ErrTransactionState.
func (c *Coordinator) AddOffsets(ctx context.Context, id string, p Producer, group string, offsets Offsets, begins bool, guard topic.Guard) error {
	_, _, err := c.change(ctx, id, func(t *Transaction) error { return t.addOffsets(p, group, offsets, begins, time.Now()) }, guard)
	return err
}

// End commits or aborts the transaction of a producer. When it returns nil the outcome is
// decided, and mostly it is everywhere: End waits for that, for a second. It is idempotent.
// Errors: as AddPartitions, ErrTransactionState.
func (c *Coordinator) End(ctx context.Context, id string, p Producer, commit bool) error {
	t, revision, err := c.change(ctx, id, func(t *Transaction) error { return t.end(p, commit) })
	if err == nil && t.State.Decided() {
		c.awaitEnd(ctx, id, t, revision)
	}
	return err
}

// EndAndBump is End of version 2: it returns the producer that the client goes on as, with a
// higher epoch or another id. An abort may end what has not begun. It is idempotent for the
// producer that has ended the transaction. Errors: as End, ErrConcurrent also if the producer
// id has no further epochs and the transaction has not ended everywhere within a second.
func (c *Coordinator) EndAndBump(ctx context.Context, id string, p Producer, commit bool) (Producer, error) {
	fresh := func() (int64, error) { return c.parts.NewProducerID(ctx) }
	for begun := time.Now(); ; {
		t, revision, err := c.change(ctx, id, func(t *Transaction) error { return t.endAndBump(p, commit, fresh) })
		if err != nil {
			return Producer{}, err
		}
		ended := !t.State.Decided() || c.awaitEnd(ctx, id, t, revision)
		if !t.exhausted() {
			return t.Producer, nil
		}
		if !ended || time.Since(begun) >= endWait {
			return Producer{}, ErrConcurrent
		}
	}
}

// Ongoing returns the revision of a transaction's record if the transaction is ongoing and
// has a partition. Errors: ErrTransactionState, ErrUnknownProducer, ErrFenced,
// ErrUnavailable.
func (c *Coordinator) Ongoing(ctx context.Context, id string, p Producer, name string, partition int32) (uint64, error) {
	for synced := false; ; synced = true {
		t, revision, err := c.read(ctx, id)
		if err != nil {
			return 0, err
		}
		if err = t.check(p); err == nil && t.State == Ongoing && t.Has(name, partition) {
			return revision, nil
		}
		if synced && err == nil {
			err = fmt.Errorf("%w: add partition %d of %q to the transaction first", topic.ErrTransactionState, partition, name)
		}
		if synced {
			return 0, err
		}
		syncing, cancel := context.WithTimeout(ctx, endWait) // other requests of the client wait
		err = c.meta.Sync(syncing)
		cancel()
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// Decided reports whether the outcome that a marker carries is the last change of its
// record. If not, the marker is late: the transaction has ended everywhere.
func (c *Coordinator) Decided(ctx context.Context, m Marker) (bool, error) {
	_, revision, err := c.read(ctx, m.TransactionalID)
	if err == nil && revision < m.Revision {
		if err = c.meta.Sync(ctx); err == nil {
			_, revision, err = c.read(ctx, m.TransactionalID)
		}
	}
	return revision == m.Revision, err
}

// Pending returns the offsets that transactions may still commit, by group, as this node
// knows them.
func (c *Coordinator) Pending(ctx context.Context) (map[string]Offsets, error) {
	pending := map[string]Offsets{}
	err := c.Each(ctx, func(_ string, _ uint64, t Transaction) {
		if t.State != Ongoing && t.State != PrepareCommit {
			return
		}
		for group, offsets := range t.Offsets {
			if pending[group] == nil {
				pending[group] = Offsets{}
			}
			pending[group].add(offsets)
		}
	})
	return pending, err
}

// Description is a transactional id with its transaction.
type Description struct {
	TransactionalID string
	Transaction
}

// Describe returns the transaction of an id, or ErrNotFound.
func (c *Coordinator) Describe(ctx context.Context, id string) (Description, error) {
	t, revision, err := c.read(ctx, id)
	if err == nil && revision == 0 {
		err = ErrNotFound // without the id: a request may name many
	}
	return Description{id, t}, err
}

// List returns the transactions of the ids that this node coordinates, by id.
func (c *Coordinator) List(ctx context.Context) (all []Description, err error) {
	err = c.Each(ctx, func(id string, _ uint64, t Transaction) {
		if c.parts.Coordinates(id) {
			all = append(all, Description{id, t})
		}
	})
	return all, err
}

// known is a decoded record.
type known struct {
	revision uint64
	Transaction
}

// Each calls f with all transactions, by id. Their maps are read-only. Records are decoded
// once for each revision.
func (c *Coordinator) Each(ctx context.Context, f func(id string, revision uint64, t Transaction)) error {
	items, err := c.meta.List(ctx, Prefix)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.mu.Lock()
	before, now := c.known, make(map[string]known, len(items))
	c.mu.Unlock()
	for _, item := range items {
		of := before[item.Key]
		if of.revision != item.Revision {
			t, err := decode(item)
			if err != nil {
				return err
			}
			of = known{item.Revision, t}
		}
		now[item.Key] = of
	}
	c.mu.Lock()
	c.known = now
	c.mu.Unlock()
	for _, item := range items {
		f(strings.TrimPrefix(item.Key, Prefix), item.Revision, now[item.Key].Transaction)
	}
	return nil
}
