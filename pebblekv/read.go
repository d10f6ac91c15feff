package pebblekv

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Get copies the value of a key; nil if there is none.
func Get(db *pebble.DB, key []byte) ([]byte, error) {
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
// false. Both are only valid during the call.
func Scan(db *pebble.DB, from, to []byte, f func(key, value []byte) (more bool, err error)) (err error) {
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

// Apply enters a batch into the log, to be synced; SyncWait of the batch waits for
// that. It turns Pebble's panic on a failed log into an error.
func Apply(db *pebble.DB, batch *pebble.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("write the log: %v", p)
		}
	}()
	return db.ApplyNoSyncWait(batch, pebble.Sync)
}
