package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/txn"
)

// The metadata decides which transactions are ongoing, and the log has their records and
// markers. Two rules keep them in step, whatever node or request is late:
//
//   - The batch that begins a transaction in a partition needs a proof: the transaction was
//     ongoing and had the partition, at a revision of its record.
//   - A marker has one too: at its revision the outcome was decided, and nothing else has
//     been written since.
//
// The partition applies a proof only if its revision is higher than the last one that it
// has applied for the producer, and if no append has failed since it was read, after which
// the partition has forgotten the revisions. So no batch can follow the marker of its
// transaction, and no marker can end a later transaction.

// proof is what the metadata has said of a transaction; zero for none.
type proof struct {
	revision uint64 // of the transaction's record
	attempt  uint64 // appends.broken when it was read
}

// errUnproven reports that a batch would begin a transaction and needs a proof.
var errUnproven = fmt.Errorf("%w: it has to be looked up", topic.ErrRetry)

// checkLocked returns an error if a batch may not be appended, and reports whether it need
// not be written again: the first offset is then base.
func (p *Partition) checkLocked(b topic.Batch, has proof, now int64) (base int64, repeated bool, err error) {
	revision := has.revision
	if has.attempt != p.appends.broken {
		revision = 0
	}
	if b.Control() {
		repeated, err = p.producers.checkMarker(b, revision, now)
		return p.next, repeated, err
	}
	if base, repeated, err = p.producers.check(b); err == nil && !repeated {
		err = p.producers.checkTransaction(b, revision)
	}
	return base, repeated, err
}

// Joins reports whether a batch needs its partition to be added to its transaction first: it
// would begin it there. With version 2 of transactions that has a new epoch, whose numbers
// begin with 0: so a producer that the partition does not know has sent a batch before this one
// if its number is another, and the error is an ErrOutOfOrderSequence. Other errors of
// the batch are found when it is appended.
func (t *Topic) Joins(partition int32, b topic.Batch) (bool, error) {
	p, err := t.Partition(partition)
	if err != nil || t.source != nil || t.Settings().Delays || !b.Transactional() {
		return false, nil // the append says why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allowsLocked() != nil {
		return false, nil
	}
	if _, repeated, err := p.producers.check(b); repeated || err != nil {
		return false, nil
	}
	id, epoch, sequence := b.Producer()
	known := p.producers.byID[id]
	if known == nil && sequence != 0 {
		return false, fmt.Errorf("%w: producer %d begins epoch %d with %d, want 0", topic.ErrOutOfOrderSequence, id, epoch, sequence)
	}
	return known == nil || known.Epoch != epoch || !p.producers.isOpen(id), nil
}

// checkTransaction returns an error if a batch does not fit the producer's transaction.
func (p *producers) checkTransaction(b topic.Batch, revision uint64) error {
	id, epoch, _ := b.Producer()
	known, open := p.byID[id], p.isOpen(id)
	switch {
	case !b.Transactional() && !open:
		return nil
	case !b.Transactional():
		return fmt.Errorf("%w: producer %d has one, and sent a batch outside of it", topic.ErrTransactionState, id)
	case open && known.Epoch == epoch && known.hanging == nil:
		return nil
	case open:
		return fmt.Errorf("%w: an earlier transaction of producer %d is being ended", topic.ErrRetry, id)
	case revision == 0 || known != nil && revision <= known.revision:
		return errUnproven
	}
	return p.mayBegin()
}

// checkMarker reports whether a marker need not be written: its transaction has ended here,
// or did not begin.
func (p *producers) checkMarker(b topic.Batch, revision uint64, now int64) (ended bool, err error) {
	id, epoch, _ := b.Producer()
	known := p.byID[id]
	switch {
	case revision == 0:
		return false, fmt.Errorf("%w: the log was read again", topic.ErrRetry)
	case known != nil && (known.revision >= revision || known.Epoch > epoch):
		return true, nil
	case known != nil && known.hanging != nil && revision > known.hanging.revision:
		return false, fmt.Errorf("%w: an earlier transaction of producer %d is being ended", topic.ErrRetry, id)
	case !p.isOpen(id):
		p.at(id, epoch, now).revision = revision
		return true, nil
	}
	return false, nil
}

// applied records the revision of a batch's proof.
func (p *producers) applied(b topic.Batch, has proof) {
	if id, _, _ := b.Producer(); has.revision > 0 {
		known := p.byID[id]
		known.revision, known.hanging = max(known.revision, has.revision), nil
	}
}

// appendTransactional appends a batch of the transaction of a transactional id.
func (p *Partition) appendTransactional(ctx context.Context, batches []topic.Batch, id string) (*Appending, error) {
	a := newAppending(batches)
	err := p.enter(ctx, a)
	if !errors.Is(err, errUnproven) {
		return a, err
	}
	producer, epoch, _ := batches[0].Producer()
	p.mu.Lock()
	a.proof.attempt = p.appends.broken
	p.mu.Unlock()
	if a.proof.revision, err = p.broker.transactions.Ongoing(ctx, id, txn.Producer{ID: producer, Epoch: epoch}, p.topic.name, p.number); err != nil {
		return nil, asAppended(err)
	}
	return a, p.enter(ctx, a)
}

// asAppended returns an error of package txn as one of an append.
func asAppended(err error) error {
	switch {
	case errors.Is(err, txn.ErrFenced):
		return fmt.Errorf("%w: %w", topic.ErrProducerFenced, err)
	case errors.Is(err, txn.ErrUnknownProducer):
		return fmt.Errorf("%w: %w", topic.ErrTransactionState, err)
	case errors.Is(err, txn.ErrUnavailable):
		return fmt.Errorf("%w: %w", topic.ErrRetry, err)
	}
	return err
}

// endTransaction appends the marker of a transaction whose outcome is decided, unless it
// has one, and returns when that is durable.
func (p *Partition) endTransaction(ctx context.Context, m txn.Marker) error {
	batch, err := newMarker(m.Producer.ID, m.Producer.Epoch, m.Commit)
	if err != nil {
		return err
	}
	a := newAppending([]topic.Batch{batch})
	p.mu.Lock()
	a.proof = proof{m.Revision, p.appends.broken}
	p.mu.Unlock()
	if decided, err := p.broker.transactions.Decided(ctx, m); err != nil || !decided {
		return err
	}
	if err := p.enter(ctx, a); err != nil {
		return err
	}
	_, _, err = a.Wait(ctx)
	return err
}
