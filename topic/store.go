package topic

import (
	"context"
	"errors"
)

// Store holds the logs and the metadata of a broker. All methods of a Store, a
// Log and a Meta may be called from many goroutines.
type Store interface {
	// OpenLog returns the log of that name, made if it does not exist. Names are
	// of letters, digits, "-" and "_", at most 200 characters.
	OpenLog(ctx context.Context, name string) (Log, error)
	// DeleteLog removes a log and all it holds; one that does not exist is
	// removed already. Calls on a Log that is open fail with ErrNoLog after it.
	DeleteLog(ctx context.Context, name string) error
	// Meta returns the metadata.
	Meta() Meta
	// Close ends the store after what was appended is durable.
	Close() error
}

// Log is a durable sequence of entries: of one partition, or of its delayed
// records. Sequences start at 1 and have no gaps.
type Log interface {
	// Append writes the entry with the sequence entry.Sequence, and calls done
	// once when it is durable or has failed. It does not wait for that: many
	// appends may be under way, and their dones come in their order, from
	// another goroutine, which done must not hold up.
	//
	// The sequence is the fence: unless the log's last is entry.Sequence-1, the
	// entry is not written and done gets ErrFenced. ErrUncertain says that no
	// answer came in time: the entry may be in the log, now or a little later.
	// After either, appends under way fail too, and the caller must look at
	// the log's end before it goes on. ErrFull says that the disk is.
	//
	// The caller must not change entry.Data until done was called.
	Append(entry Entry, done func(error))
	// Read returns entries in order, from the first with a sequence ≥ from on:
	// at least one if there is one, and more up to maxBytes of data.
	Read(ctx context.Context, from uint64, maxBytes int) ([]Entry, error)
	// Trim removes the entries before a sequence.
	Trim(ctx context.Context, before uint64) error
	// Ends returns the first and the last sequence that is there. First is
	// last+1 if there is none; last is that of the last append ever.
	Ends(ctx context.Context) (first, last uint64, err error)
	// Wait returns nil when the log's last sequence is at least that, or ctx's
	// error.
	Wait(ctx context.Context, sequence uint64) error
}

// Entry is what one append writes.
type Entry struct {
	// Sequence is the entry's place in its log, from 1.
	Sequence uint64
	Mark     Mark
	// Data holds whole batches, one after another; none if the entry is only
	// there to take its sequence from others.
	Data []byte
}

// Mark says what an entry holds, and what all entries up to and with it hold
// together. No field ever falls from one entry to the next.
type Mark struct {
	// Base is the offset of the entry's first record, Next that after its last.
	Base, Next int64
	// Epoch is the leader epoch under which it was appended.
	Epoch int32
	// MaxTimestamp is the highest timestamp of a record so far, in milliseconds
	// since the epoch; NoTimestamp before the first.
	MaxTimestamp int64
	// Bytes is the length of all data so far.
	Bytes int64
	// Released counts the releases of delayed records so far.
	Released int64
}

// NoTimestamp is the timestamp of a record that has none.
const NoTimestamp = -1

// Meta is a small, durable map with compare-and-set: what brokers must agree
// on. Values are at most 4 MiB.
type Meta interface {
	// Get returns the value of a key; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Item, error)
	// Put sets a value if the key's revision is the given one, 0 for a key
	// that must not exist, and returns the new revision. If it is another:
	// ErrConflict.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes a key under the same condition.
	Delete(ctx context.Context, key string, revision uint64) error
	// List returns all items whose key begins with prefix, ordered by key.
	List(ctx context.Context, prefix string) ([]Item, error)
}

// Item is one key of a Meta with its value. Keys are any bytes, at most 600.
type Item struct {
	Key      string
	Value    []byte
	Revision uint64
}

// Errors of stores. Those of a call may be wrapped.
var (
	// ErrFenced says that the log's end is not where the caller believed.
	ErrFenced = errors.New("fenced: another append came first")
	// ErrUncertain says that an append was not answered.
	ErrUncertain = errors.New("append was not answered in time")
	// ErrFull says that there is no room on the disk.
	ErrFull = errors.New("no space left")
	// ErrNoLog says that the log was deleted.
	ErrNoLog = errors.New("log does not exist")
	// ErrClosed says that the store or broker is closed.
	ErrClosed = errors.New("closed")
	// ErrNotFound says that a key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that a key has another revision.
	ErrConflict = errors.New("changed meanwhile")
)
