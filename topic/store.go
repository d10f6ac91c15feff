package topic

import (
	"context"
	"errors"
)

// Store holds the logs and the metadata of a broker. All methods of a Store, a
// Log and a Meta may be called from many goroutines.
type Store interface {
	// OpenLog returns the log of that name. If it does not exist it is made, on
	// these nodes; a store of one node needs none. Names are of letters, digits,
	// "-" and "_", at most 200 characters.
	OpenLog(ctx context.Context, name string, nodes []int32) (Log, error)
	// DeleteLog removes a log and all it holds; one that does not exist is
	// removed already. Calls on a Log that is open fail with ErrNoLog after it.
	DeleteLog(ctx context.Context, name string) error
	// Meta returns the metadata.
	Meta() Meta
	// Cluster returns what the store knows of its nodes; nil for a store of one
	// node, which leads all its logs.
	Cluster() Cluster
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
//
// Put, Delete and Sync are linearizable, over all nodes. Get and List return
// what was there at one moment: not before this node's last Put, Delete or Sync
// that has returned, and otherwise as it was a little earlier, where another node
// has written.
type Meta interface {
	// Get returns the value of a key; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Item, error)
	// Put sets a value if the key's revision is the given one, 0 for a key
	// that must not exist, and returns the new revision. If it is another, or that
	// of a guard is: ErrConflict.
	Put(ctx context.Context, key string, value []byte, revision uint64, guards ...Guard) (uint64, error)
	// Delete removes a key under the same condition.
	Delete(ctx context.Context, key string, revision uint64, guards ...Guard) error
	// List returns all items whose key begins with prefix, ordered by key.
	List(ctx context.Context, prefix string) ([]Item, error)
	// Sync returns when Get and List know all that was written before the call,
	// by any node.
	Sync(ctx context.Context) error
	// Watch calls signal, which must not block, whenever an item whose key
	// begins with prefix may have changed, until the returned function is called.
	Watch(prefix string, signal func()) (cancel func())
}

// Guard is a condition of a write on another key: it must have that revision, 0
// if it must not exist.
type Guard struct {
	Key      string
	Revision uint64
}

// Item is one key of a Meta with its value. Keys are any bytes, at most 600.
type Item struct {
	Key      string
	Value    []byte
	Revision uint64
}

// Cluster is what a store knows of its nodes. Nodes have numbers from 1 on. What
// it says of leaders may be out of date by the time it is said: only an append
// tells who leads.
type Cluster interface {
	// Node returns the number of this node.
	Node() int32
	// Alive returns the nodes that have been heard of lately, this one with them,
	// in order.
	Alive() []int32
	// Leads tells whether this node leads a log. Appends from elsewhere reach the
	// leader too, later.
	Leads(log string) bool
	// Watch calls signal, which must not block, whenever what Alive or Leads
	// returns may have changed, until the returned function is called.
	Watch(signal func()) (cancel func())
	// Followed notes how far this node follows the metadata: what has revisions up
	// to that one is what it tells its clients. The others are told.
	Followed(revision uint64)
	// AwaitFollowed returns when all others follow the metadata so far, but for
	// those that are not alive or do not follow it yet. ctx's error.
	AwaitFollowed(ctx context.Context, revision uint64) error
	// Replicas returns who keeps a log. ErrNoLog, or an error if nobody who knows
	// answers, as while it has no leader.
	Replicas(ctx context.Context, log string) (Replicas, error)
	// Place brings a log one step towards being kept by exactly these nodes, and
	// tells whether it is. Nodes that are new have all of it before others give
	// it up. It does not wait: call it again.
	Place(ctx context.Context, log string, nodes []int32) (placed bool, err error)
	// Resign lets another node lead a log that this one leads: one that is current,
	// that one if it is, and any for 0. It returns when this one does not lead any
	// more.
	Resign(ctx context.Context, log string, to int32) error
	// Leave hands everything that this node leads to others, as before a planned
	// stop, and lets them know that it goes.
	Leave(ctx context.Context) error
	// Remove takes a node that has stopped out of the cluster, for good.
	Remove(ctx context.Context, node int32) error
}

// Replicas are the nodes that keep a log.
type Replicas struct {
	// Leader is the one that leads it, 0 if none does.
	Leader int32
	// Nodes are all, and Current those that have all of it, in order. Those that
	// are to have it and do not yet are in neither.
	Nodes, Current []int32
	// Moving says that they are being changed.
	Moving bool
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
