package topic

import (
	"context"
	"errors"
	"fmt"
)

// Store holds the logs and the metadata of a broker. All methods of a Store, a
// Log and a Meta are safe for concurrent use.
type Store interface {
	// OpenLog opens the log of that name. A missing log is created on these nodes, 1 to 5;
	// without nodes the log must exist, and the error of a missing one is ErrNoLog: the
	// caller knows that it was made. Names consist of letters, digits, "-" and "_", at most
	// 200 characters.
	OpenLog(ctx context.Context, name string, nodes []int32) (Log, error)
	// MakeLog is OpenLog for a log that does not exist: its first entry will have
	// the sequence first, as if the entries before it had been trimmed.
	MakeLog(ctx context.Context, name string, nodes []int32, first uint64) (Log, error)
	// DeleteLog removes a log and its entries; it is idempotent. Afterwards, calls on
	// a Log that is open fail with ErrNoLog.
	DeleteLog(ctx context.Context, name string) error
	// Meta returns the metadata.
	Meta() Meta
	// Cluster returns the store's view of its nodes: [Single] for a store of one node.
	Cluster() Cluster
	// Close waits until all appends are durable and closes the store.
	Close() error
}

// Volume is what a store may implement that knows the disk that it is on.
type Volume interface {
	// Volume returns the size of the disk in bytes, and how many can be added.
	Volume() (total, free int64, err error)
}

// Lister is what a store of several nodes implements.
type Lister interface {
	// Logs returns the names of all logs, which may have changed when it returns.
	Logs(ctx context.Context) ([]string, error)
}

// Syncer is what a log may implement whose acknowledged entries a power cut may take.
type Syncer interface {
	// Sync returns when a power cut takes no entry that was acknowledged before the call.
	Sync(ctx context.Context) error
}

// Log is a durable sequence of entries: of one partition, or of its delayed
// records. Sequences start at 1 and have no gaps.
type Log interface {
	// Append writes the entry with the sequence entry.Sequence, and calls done
	// once when the entry is durable or has failed. Append does not wait for
	// that: many appends may be in flight, and their dones are called in the same
	// order, from another goroutine, which done must not block.
	//
	// The sequence is the fence: unless the log's last is entry.Sequence-1, the
	// entry is not written and done gets ErrFenced. ErrUncertain means that no
	// answer came in time: the entry may be in the log, now or a little later.
	// After either error, appends in flight fail too, and the caller must read
	// the log's end before it continues. ErrFull means that the disk is full.
	//
	// The caller must not change entry.Data before done is called without an error. Then the log no
	// longer uses it.
	Append(entry Entry, done func(error))
	// Read returns entries in order, starting with the first whose sequence is at
	// least from: at least one if there is one, and more up to maxBytes of data.
	Read(ctx context.Context, from uint64, maxBytes int) ([]Entry, error)
	// Trim removes the entries before a sequence.
	Trim(ctx context.Context, before uint64) error
	// Ends returns the first and the last sequence in the log. First is last+1 if
	// the log is empty; last is the sequence of the last append ever.
	Ends(ctx context.Context) (first, last uint64, err error)
	// Wait returns nil when the log's last sequence is at least sequence, or ctx's
	// error.
	Wait(ctx context.Context, sequence uint64) error
}

// Entry is the unit of one append.
type Entry struct {
	// Sequence is the entry's place in its log, from 1.
	Sequence uint64
	Mark     Mark
	// Data holds whole batches, one after another; it is empty if the entry only
	// takes its sequence, so that no other append can.
	Data []byte
	// Block is the memory of Data, and of that of all entries of the same read; nil: it is not used again. The reader may free it once,
	// when none of them is in use any more.
	Block *Block
	// Sum is the CRC-32C of Data, 0 if it is not known: who appends and has checked the batches knows it, and so does a log that
	// has checked what it read.
	Sum uint32
}

// Mark describes an entry, and the sum of all entries up to and including it. No
// field ever falls from one entry to the next.
type Mark struct {
	// Base is the offset of the entry's first record, Next the offset after its last.
	Base, Next int64
	// Epoch is the leader epoch under which the entry was appended.
	Epoch int32
	// MaxTimestamp is the highest timestamp of a record so far, in milliseconds
	// since the epoch; NoTimestamp before the first.
	MaxTimestamp int64
	// Bytes is the length of all data so far.
	Bytes int64
	// Released counts the releases of delayed records so far.
	Released int64
}

// NoTimestamp is the timestamp of a record without one.
const NoTimestamp = -1

// Meta is a small, durable map with compare-and-set for the facts that brokers
// must agree on. Values are at most 4 MiB.
//
// Put, Delete and Sync are linearizable across all nodes. Get and List return a
// consistent state that includes this node's last Put, Delete or Sync that has
// returned, and may lag a little behind the writes of other nodes.
type Meta interface {
	// Get returns the value of a key; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Item, error)
	// Put sets a value if the key has the given revision, 0 for a key that must
	// not exist, and returns the new revision. If the revision of the key or of a
	// guard differs, the error is ErrConflict.
	Put(ctx context.Context, key string, value []byte, revision uint64, guards ...Guard) (uint64, error)
	// Delete removes a key under the same condition.
	Delete(ctx context.Context, key string, revision uint64, guards ...Guard) error
	// List returns all items whose key begins with prefix, ordered by key.
	List(ctx context.Context, prefix string) ([]Item, error)
	// Sync waits until Get and List include everything that was written before the
	// call, by any node.
	Sync(ctx context.Context) error
	// Watch calls signal, which must not block, whenever an item whose key
	// begins with prefix may have changed, until the returned function is called.
	Watch(prefix string, signal func()) (cancel func())
}

// Guard is a condition of a write on another key: the key must have that
// revision, or must not exist for 0.
type Guard struct {
	Key      string
	Revision uint64
}

// Item is one key of a Meta with its value. Keys may hold any bytes, at most 600.
type Item struct {
	Key      string
	Value    []byte
	Revision uint64
}

// Cluster is a store's view of its nodes. Nodes are numbered from 1. Its answers
// about leaders may be out of date already when they are returned: only an append
// proves leadership.
type Cluster interface {
	// Node returns the number of this node.
	Node() int32
	// Alone reports whether the store can have no other node, now or later. Only then
	// may a log have several appends in flight: no other leader can append between them.
	Alone() bool
	// Alive returns the nodes that were heard of recently, including this one, in
	// order.
	Alive() []int32
	// Leads reports whether this node leads a log. Appends from other nodes reach the
	// leader too, later.
	Leads(log string) bool
	// Watch calls signal, which must not block, whenever what Alive or Leads
	// returns may have changed, until the returned function is called.
	Watch(signal func()) (cancel func())
	// Followed records, for the other nodes, the revision of the metadata up to which
	// this node's answers to its clients are current.
	Followed(revision uint64)
	// AwaitFollowed waits until all other nodes follow the metadata up to revision,
	// except nodes that are not alive or do not follow it yet. It returns ctx's error.
	AwaitFollowed(ctx context.Context, revision uint64) error
	// Replicas returns the nodes that keep a log. It returns ErrNoLog, or an error
	// if no node that knows answers, for example while the log has no leader.
	Replicas(ctx context.Context, log string) (Replicas, error)
	// Place brings a log one step towards being kept by exactly these nodes, and
	// reports whether that is reached. New nodes have the whole log before others
	// give it up. Place does not wait: call it repeatedly.
	Place(ctx context.Context, log string, nodes []int32) (placed bool, err error)
	// Resign passes the leadership of a log that this node leads to a node that is
	// current: to the node to if that is current, to any for 0. It returns when this
	// node no longer leads.
	Resign(ctx context.Context, log string, to int32) error
	// Leave passes everything that this node leads to other nodes, as before a
	// planned stop, and announces that this node is leaving.
	Leave(ctx context.Context) error
	// Remove removes a stopped node from the cluster, permanently.
	Remove(ctx context.Context, node int32) error
	// Ask sends a request of at most MaxRequest bytes to another node, and returns its
	// answer. ErrNoAnswer reports that the node cannot be reached, answers no requests, or
	// has not answered in time: it may have done what was asked.
	Ask(ctx context.Context, node int32, request []byte) (answer []byte, err error)
	// Answer makes this node answer the requests of other nodes with a function, until
	// cancel is called. The function is called concurrently, and returns when its ctx
	// ends. Only nodes of the cluster can ask.
	Answer(with func(ctx context.Context, request []byte) []byte) (cancel func(), err error)
}

// MaxRequest is the most bytes of a request of one node to another, and of its answer.
const MaxRequest = 4 << 20

// Replicas are the nodes that keep a log.
type Replicas struct {
	// Leader is the node that leads the log, 0 for none.
	Leader int32
	// Nodes are all nodes that keep the log, Current those with all of it, in order.
	// Nodes that are still to receive it are in neither.
	Nodes, Current []int32
	// Moving reports whether the replicas are being changed.
	Moving bool
}

// Errors of stores. A call may wrap them.
var (
	// ErrFenced reports that the log's end is not where the caller believed.
	ErrFenced = errors.New("fenced: another append came first")
	// ErrUncertain reports that an append was not answered in time.
	ErrUncertain = errors.New("append was not answered in time")
	// ErrFull reports that the disk is full.
	ErrFull = errors.New("no space left")
	// ErrNoLog reports that the log was deleted, or is missing.
	ErrNoLog = errors.New("log does not exist")
	// ErrClosed reports that the store or broker is closed.
	ErrClosed = errors.New("closed")
	// ErrNotFound reports that a key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict reports that a key has another revision.
	ErrConflict = errors.New("changed by another writer")
	// ErrNoAnswer reports that a node has not answered a request of another one.
	ErrNoAnswer = errors.New("no answer")
)

const (
	// EntryBytes is the maximum size of an entry, unless a single append is larger.
	EntryBytes = 1 << 20
)

// Before reports whether any field of m is less than in the other mark.
func (m Mark) Before(other Mark) bool {
	return m.Base < other.Base || m.Next < other.Next || m.Epoch < other.Epoch ||
		m.MaxTimestamp < other.MaxTimestamp || m.Bytes < other.Bytes || m.Released < other.Released
}

// ReadEntry returns the first entry at or after a sequence.
func ReadEntry(ctx context.Context, log Log, sequence uint64) (Entry, error) {
	entries, err := log.Read(ctx, sequence, 1)
	if err != nil {
		return Entry{}, err
	}
	if len(entries) == 0 {
		return Entry{}, fmt.Errorf("read entry %d: %w", sequence, ErrNotFound)
	}
	return entries[0], nil
}
