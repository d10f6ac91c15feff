package broker

import (
	"context"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/txn"
)

// A log that has lost its end, as after a power failure within the sync interval, may have lost
// markers that the metadata counts as written. Nothing would end their transactions: so a
// partition whose log was read ends those that the metadata does not have, before it takes
// another batch of their producers.

// lostEnd is how a transaction ends that the metadata does not have.
type lostEnd struct {
	commit   bool
	revision uint64 // of the record that says so; 1 without a record
}

// findHanging marks the open transactions that nothing else ends.
func (p *Partition) findHanging(ctx context.Context, known *producers) error {
	if len(known.open) == 0 {
		return nil
	}
	if err := p.broker.store.Meta().Sync(ctx); err != nil {
		return err
	}
	ended := map[int64]lostEnd{}
	for id := range known.open {
		ended[id] = lostEnd{revision: 1}
	}
	err := p.broker.transactions.Each(ctx, func(_ string, revision uint64, t txn.Transaction) {
		ran := t.Ran()
		of := known.byID[ran.ID]
		switch _, open := ended[ran.ID]; {
		case !open:
		case t.Has(p.topic.name, p.number) && (t.State == txn.PrepareAbort || of.Epoch == ran.Epoch):
			delete(ended, ran.ID)
		default:
			ended[ran.ID] = lostEnd{t.State == txn.CompleteCommit && of.Epoch == ran.Epoch, revision}
		}
	})
	for id, how := range ended {
		known.byID[id].hanging = &how
	}
	return err
}

// endHanging ends the transactions that findHanging has marked.
func (p *Partition) endHanging(ctx context.Context) error {
	p.mu.Lock()
	attempt, all := p.appends.broken, map[txn.Producer]lostEnd{}
	for id, known := range p.producers.byID {
		if known.hanging != nil {
			all[txn.Producer{ID: id, Epoch: known.Epoch}] = *known.hanging
		}
	}
	p.mu.Unlock()
	for of, how := range all {
		p.broker.log.Error("the log has lost the end of a transaction, which is written again", "partition", p.String(), "producer", of.ID, "commit", how.commit)
		batch, err := newMarker(of.ID, of.Epoch, how.commit)
		if err != nil {
			return err
		}
		a := newAppending([]topic.Batch{batch})
		a.proof = proof{how.revision, attempt}
		if err = p.enter(ctx, a); err == nil {
			_, _, err = a.Wait(ctx)
		}
		if err != nil { // then the log is read again, or by another leader
			p.broker.log.Warn("end of a transaction not written", "partition", p.String(), "error", err)
		}
	}
	return nil
}
