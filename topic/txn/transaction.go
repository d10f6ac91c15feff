package txn

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// State is the state of a transactional id.
type State string

// The states, with Kafka's names.
const (
	Empty          State = "Empty"
	Ongoing        State = "Ongoing"
	PrepareCommit  State = "PrepareCommit"
	PrepareAbort   State = "PrepareAbort"
	CompleteCommit State = "CompleteCommit"
	CompleteAbort  State = "CompleteAbort"
)

// States are all states.
var States = []State{Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort}

// Errors of transactions. They come wrapped with details.
var (
	// ErrFenced reports that another producer has the transactional id now, or that the
	// transaction was aborted because it took too long.
	ErrFenced = errors.New("producer is fenced")
	// ErrUnknownProducer reports that the transactional id has another producer id, or none.
	ErrUnknownProducer = errors.New("producer id is not that of the transactional id")
	// ErrConcurrent reports that the last transaction is still being ended: try again.
	ErrConcurrent = errors.New("the last transaction is being ended")
	// ErrInvalid reports a malformed request.
	ErrInvalid = errors.New("invalid transaction request")
	// ErrTimeout reports a transaction timeout out of range.
	ErrTimeout = errors.New("invalid transaction timeout")
	// ErrFull reports that there are too many transactional ids, or that a transaction is
	// too large.
	ErrFull = errors.New("too many transactions")
	// ErrNotFound reports that there is no such transactional id.
	ErrNotFound = errors.New("transactional id does not exist")
	// ErrUnavailable reports that the metadata cannot be read or written now: try again.
	ErrUnavailable = errors.New("transactions are not available")
)

const (
	// Prefix begins the keys of transactions in the metadata.
	Prefix = "transactions/"
	// format is the version of the stored records, and formatEnded of those with Ended.
	format      = 1
	formatEnded = 2
	// Version is the latest version of transactions that this package knows: KIP-890's second
	// one, in which ends raise the epoch.
	Version = 2
	// MaxTimeout is the longest timeout of a transaction.
	MaxTimeout = 15 * time.Minute
	// maxID bounds the length of a transactional id in bytes: it is part of a key.
	maxID = 255
	// maxBytes bounds a stored transaction, with all that it has changed.
	maxBytes = 1 << 20
	// noEpoch is no epoch.
	noEpoch = -1
)

// Producer is a producer id with its epoch.
type Producer struct {
	ID    int64 `json:"id"`
	Epoch int16 `json:"epoch"`
}

// Transaction is the stored record of a transactional id. Times are milliseconds since the
// epoch.
type Transaction struct {
	Format   int      `json:"format"`
	State    State    `json:"state"`
	Producer Producer `json:"producer"`
	// LastEpoch is the epoch that a producer may still name to get the present one; -1 for
	// none.
	LastEpoch int16 `json:"last_epoch"`
	TimeoutMS int64 `json:"timeout_ms"`
	// Ended is the producer whose EndTxn of version 2 has ended the last transaction, or one
	// without any change: Producer is what it goes on as. Nil: there was none.
	Ended *Producer `json:"ended,omitempty"`
	// BegunMS is when the transaction began, 0 if none is ongoing; ChangedMS when the
	// record was written.
	BegunMS   int64 `json:"begun_ms,omitempty"`
	ChangedMS int64 `json:"changed_ms"`
	// Partitions are those with records of the transaction, by topic, and Offsets those that
	// it commits, by group. A group may have none yet.
	Partitions map[string][]int32 `json:"partitions,omitempty"`
	Offsets    map[string]Offsets `json:"offsets,omitempty"`
}

// Offsets are the offsets of a group, by topic and partition.
type Offsets map[string]map[int32]Offset

// Offset is a committed position: see [group.OffsetCommit].
type Offset struct {
	Offset   int64  `json:"offset"`
	Epoch    int32  `json:"epoch"`
	Metadata string `json:"metadata,omitempty"`
}

// Marker ends a transaction in a partition.
type Marker struct {
	// TransactionalID and Revision identify the record that has decided the outcome.
	TransactionalID string   `json:"transactional_id"`
	Revision        uint64   `json:"revision"`
	Producer        Producer `json:"producer"`
	Commit          bool     `json:"commit"`
}

func decode(item topic.Item) (t Transaction, err error) {
	if err := json.Unmarshal(item.Value, &t); err != nil {
		return t, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if t.Format < format || t.Format > formatEnded {
		return t, fmt.Errorf("metadata %q: format %d; this version reads %d and %d: upgrade this node", item.Key, t.Format, format, formatEnded)
	}
	return t, nil
}

func (t *Transaction) encode() ([]byte, error) {
	if t.Format = format; t.Ended != nil {
		t.Format = formatEnded
	}
	value, err := json.Marshal(t)
	if err == nil && len(value) > maxBytes {
		err = fmt.Errorf("%w: the transaction changes so much that its record has %d bytes, want at most %d", ErrFull, len(value), maxBytes)
	}
	return value, err
}

// Decided reports whether the outcome is decided and not yet everywhere.
func (s State) Decided() bool { return s == PrepareCommit || s == PrepareAbort }

// Has reports whether a partition belongs to the present transaction.
func (t *Transaction) Has(name string, partition int32) bool {
	return slices.Contains(t.Partitions[name], partition)
}

// Ran returns the producer of the present transaction, or of the last one.
func (t *Transaction) Ran() Producer {
	if t.Ended != nil {
		return *t.Ended
	}
	return t.Producer
}

// The transitions change a transaction, or return why they may not.

// initialize gives a transactional id to a producer. Expected is the producer that the client
// had, nil for a new one. A fresh producer id is used if the present one has no epochs left.
// Ended is false if a transaction must end first; then the transition has begun to abort it.
func (t *Transaction) initialize(now time.Time, timeout time.Duration, expected *Producer, fresh func() (int64, error)) (ended bool, err error) {
	repeated := expected != nil && t.precedes(*expected)
	switch {
	case t.State == "" && expected != nil:
		return false, ErrUnknownProducer
	case expected != nil && expected.ID != t.Producer.ID && !repeated:
		return false, fmt.Errorf("%w: %d, it is %d", ErrUnknownProducer, expected.ID, t.Producer.ID)
	case expected != nil && *expected != t.Producer && (!repeated || t.State == Ongoing):
		return false, fmt.Errorf("%w: epoch %d, it is %d", ErrFenced, expected.Epoch, t.Producer.Epoch)
	case t.State.Decided():
		return false, nil
	case t.State == Ongoing:
		t.fence(expected != nil)
		return false, nil
	}
	if !repeated {
		t.Ended = nil
	}
	switch {
	case t.State == "" || t.Producer.Epoch >= math.MaxInt16-1:
		id, err := fresh()
		if err != nil {
			return false, err
		}
		t.Producer, t.LastEpoch, t.Ended = Producer{ID: id}, noEpoch, nil
	case !repeated:
		t.LastEpoch = noEpoch
		if expected != nil {
			t.LastEpoch = expected.Epoch
		}
		t.Producer.Epoch++
	}
	t.State, t.TimeoutMS, t.ChangedMS = Empty, timeout.Milliseconds(), now.UnixMilli()
	return true, nil
}

// precedes reports whether a producer may ask for the present one: it is the one before.
func (t *Transaction) precedes(p Producer) bool {
	return t.Ended != nil && p == *t.Ended || t.LastEpoch != noEpoch && p == Producer{t.Producer.ID, t.LastEpoch}
}

// fence aborts an ongoing transaction with a higher epoch, so that the producer can
// change nothing more. With keep it may name its epoch once more, to continue.
func (t *Transaction) fence(keep bool) {
	t.LastEpoch = noEpoch
	if keep {
		t.LastEpoch = t.Producer.Epoch
	}
	t.Producer.Epoch++
	t.State = PrepareAbort
}

// check returns why a producer may not change the transaction, if so.
func (t *Transaction) check(p Producer) error {
	switch {
	case t.State == "" || p.ID != t.Producer.ID:
		return ErrUnknownProducer
	case p.Epoch != t.Producer.Epoch:
		return fmt.Errorf("%w: epoch %d, it is %d", ErrFenced, p.Epoch, t.Producer.Epoch)
	}
	return nil
}

// begin begins a transaction, unless one is ongoing.
func (t *Transaction) begin(p Producer, now time.Time) error {
	if err := t.check(p); err != nil {
		return err
	}
	if t.State.Decided() {
		return ErrConcurrent
	}
	if t.State != Ongoing { // the producer knows its epoch: it need not ask for it any more
		t.State, t.BegunMS, t.LastEpoch, t.Ended = Ongoing, now.UnixMilli(), noEpoch, nil
		t.Partitions, t.Offsets = map[string][]int32{}, map[string]Offsets{}
	}
	return nil
}

// addPartitions adds partitions, by topic.
func (t *Transaction) addPartitions(p Producer, partitions map[string][]int32, now time.Time) error {
	if err := t.begin(p, now); err != nil {
		return err
	}
	if t.Partitions == nil {
		t.Partitions = map[string][]int32{}
	}
	for name, numbers := range partitions {
		all := append(slices.Clone(t.Partitions[name]), numbers...)
		slices.Sort(all)
		t.Partitions[name] = slices.Compact(all)
	}
	return nil
}

// addGroup adds a group whose offsets the transaction will commit.
func (t *Transaction) addGroup(p Producer, group string, now time.Time) error {
	if err := t.begin(p, now); err != nil {
		return err
	}
	if t.Offsets == nil {
		t.Offsets = map[string]Offsets{}
	}
	if t.Offsets[group] == nil {
		t.Offsets[group] = Offsets{}
	}
	return nil
}

// addOffsets adds offsets of a group that was added; with begins it adds the group too.
func (t *Transaction) addOffsets(p Producer, group string, offsets Offsets, begins bool, now time.Time) error {
	if begins {
		if err := t.addGroup(p, group, now); err != nil {
			return err
		}
	}
	if err := t.check(p); err != nil {
		return err
	}
	of, added := t.Offsets[group]
	if t.State != Ongoing || !added {
		return fmt.Errorf("%w: add the offsets of group %q to the transaction first", topic.ErrTransactionState, group)
	}
	of.add(offsets)
	return nil
}

// add adds the offsets of others.
func (o Offsets) add(others Offsets) {
	for name, partitions := range others {
		if o[name] == nil {
			o[name] = map[int32]Offset{}
		}
		maps.Copy(o[name], partitions)
	}
}

// outcome returns the states of a commit, or of an abort.
func outcome(commit bool) (prepare, complete State) {
	if commit {
		return PrepareCommit, CompleteCommit
	}
	return PrepareAbort, CompleteAbort
}

// end decides the outcome. It is idempotent.
func (t *Transaction) end(p Producer, commit bool) error {
	if err := t.check(p); err != nil {
		return err
	}
	prepare, complete := outcome(commit)
	switch t.State {
	case Ongoing:
		t.State = prepare
	case prepare, complete:
	default:
		return fmt.Errorf("%w: the state of the transaction is %s", topic.ErrTransactionState, t.State)
	}
	return nil
}

// endAndBump is end of version 2: the producer goes on with a higher epoch, so that its late
// batches are fenced. It may abort although nothing has begun. It is idempotent for the
// producer that has ended the transaction, or whose transaction was aborted because it took
// too long. A producer id without further epochs is replaced by a fresh one once the
// transaction has ended everywhere: until then Producer is exhausted.
func (t *Transaction) endAndBump(p Producer, commit bool, fresh func() (int64, error)) error {
	prepare, complete := outcome(commit)
	if err := t.check(p); err != nil {
		repeated := t.Ended != nil && p == *t.Ended || !commit && t.precedes(p)
		if repeated && (t.State == prepare || t.State == complete) {
			return t.renew(p, fresh)
		}
		return err
	}
	switch {
	case t.State.Decided():
		return ErrConcurrent
	case t.State == Ongoing:
		t.State = prepare
	case !commit:
		t.State = complete
	default:
		return fmt.Errorf("%w: the state of the transaction is %s", topic.ErrTransactionState, t.State)
	}
	t.Ended, t.LastEpoch = &p, p.Epoch
	t.Producer.Epoch++
	return t.renew(p, fresh)
}

// renew replaces an exhausted producer id, unless its last transaction is still being ended.
func (t *Transaction) renew(ended Producer, fresh func() (int64, error)) error {
	if !t.exhausted() || t.State.Decided() {
		return nil
	}
	id, err := fresh()
	if err == nil {
		t.Producer, t.Ended, t.LastEpoch = Producer{ID: id}, &ended, noEpoch
	}
	return err
}

// exhausted reports whether the producer has an epoch that markers may have and clients may not.
func (t *Transaction) exhausted() bool { return t.Producer.Epoch == math.MaxInt16 }

// expired reports whether an ongoing transaction has taken too long.
func (t *Transaction) expired(now time.Time) bool {
	return t.State == Ongoing && now.UnixMilli() >= t.BegunMS+t.TimeoutMS
}

// complete ends a transaction whose outcome is everywhere.
func (t *Transaction) complete(now time.Time) {
	switch t.State {
	case PrepareCommit:
		t.State = CompleteCommit
	case PrepareAbort:
		t.State = CompleteAbort
	}
	t.ChangedMS, t.BegunMS, t.Partitions, t.Offsets = now.UnixMilli(), 0, nil, nil
}
