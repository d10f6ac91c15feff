package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

// Get copies the value of a key; nil if there is none.
func Get(db pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// Scan calls f for each key and value in a range, in order, until f returns
// false. The key and the value are valid only during the call.
func Scan(db pebble.Reader, from, to []byte, f func(key, value []byte) (more bool, err error)) (err error) {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := f(iter.Key(), value); err != nil || !more {
			return err
		}
	}
	return iter.Error()
}

// Ascent reads many ranges within one, in ascending order: a step to the next is cheaper than an
// iterator for each. It sees the database as it was when it was made.
type Ascent struct {
	iter  *pebble.Iterator
	ended bool // all keys are below the last range
}

// NewAscent returns an Ascent of the ranges from one key to another. It must be closed.
func NewAscent(db *pebble.DB, from, to []byte) (*Ascent, error) {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	return &Ascent{iter: iter}, err
}

// Close releases the iterator.
func (a *Ascent) Close() error { return a.iter.Close() }

// first goes to the first key of a range, and reports whether there is one.
func (a *Ascent) first(from, to []byte) bool {
	if a.ended {
		return false
	}
	if !a.iter.Valid() || bytes.Compare(a.iter.Key(), from) < 0 {
		a.ended = !a.iter.SeekGE(from)
	}
	return a.within(to)
}

func (a *Ascent) within(to []byte) bool { return a.iter.Valid() && bytes.Compare(a.iter.Key(), to) < 0 }

// Scan is as the function Scan, of a range that is above those before.
func (a *Ascent) Scan(from, to []byte, f func(key, value []byte) (more bool, err error)) error {
	for valid := a.first(from, to); valid; valid = a.iter.Next() && a.within(to) {
		value, err := a.iter.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := f(a.iter.Key(), value); err != nil || !more {
			return err
		}
	}
	return a.iter.Error()
}

// Last returns the last key of a range that is above those before, valid until the next call; nil
// if it is empty.
func (a *Ascent) Last(from, to []byte) ([]byte, error) {
	if !a.first(from, to) || !a.iter.SeekLT(to) {
		return nil, a.iter.Error()
	}
	return a.iter.Key(), nil
}

// Apply adds a batch to the log; SyncWait of the batch waits until it is synced. Pebble's
// panic on a failed log becomes an error.
func Apply(db *pebble.DB, batch *pebble.Batch) (err error) {
	defer recovered(&err)
	return db.ApplyNoSyncWait(batch, pebble.Sync)
}

// Checkpoint puts the database, with all writes that have returned, into a folder that it makes: as
// links to its files where the file system has them. The database is written to as usual.
func Checkpoint(db *pebble.DB, dir string) (err error) {
	defer recovered(&err)
	return db.Checkpoint(dir, pebble.WithFlushedWAL())
}

// recovered turns Pebble's panic on a failed log into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("write the log: %v", p)
	}
}

// Logger hands Pebble's messages to slog. Pebble calls Fatalf when it
// cannot go on; Apply turns the panic into an error.
type Logger struct{ Log *slog.Logger }

// Infof drops the message: Pebble logs its routine work with it.
func (l Logger) Infof(string, ...any) {}

// Errorf logs an error.
func (l Logger) Errorf(format string, args ...any) {
	l.Log.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf logs an error and panics.
func (l Logger) Fatalf(format string, args ...any) {
	l.Log.Error("pebble: " + fmt.Sprintf(format, args...))
	panic(fmt.Sprintf(format, args...))
}
