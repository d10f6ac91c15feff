package pebblestore

import (
	"encoding/binary"
	"fmt"
)

// FormatVersion is the version of what this package stores. A store of version 1
// or 2 becomes one of version 3 when it is opened: the one has no outbox, and
// neither has schedules. A store of another version is not opened.
const FormatVersion = 3

// The first byte of a key says what it holds.
const (
	keyMeta     = 'M' // name → value
	keyAction   = 'a' // number → the action's record, JSON
	keyID       = 'i' // id → number
	keyLive     = 'l' // number → nothing: the action is unfinished
	keyPayloads = 'p' // number, first index → a page of payloads
	keyLog      = 's' // number, page → the log of a page's jobs
	keyOutcomes = 'o' // number, batch → a batch of outcomes
	keyDead     = 'd' // number, index → a dead letter
	keySetting  = 'c' // kind, name → a setting, JSON
	keyEvent    = 'e' // number → an entry of the outbox
	keySchedule = 'r' // name → a schedule, JSON
	keyAuto     = 'f' // name of a target → what was found of its rate, JSON
)

var (
	metaVersion  = []byte("Mversion")
	metaNumber   = []byte("Mnumber")   // the highest number given to an action
	metaWindow   = []byte("Mwindow")   // when the window of the last attempt ends
	metaEvents   = []byte("Mevents")   // nothing: events are kept
	metaRevision = []byte("Mrevision") // the highest revision given to a schedule
)

// VersionError: the directory holds a store of another format.
type VersionError struct{ Found uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the store has format %d, this program reads and writes format %d: use the version of sluice that wrote it", e.Found, FormatVersion)
}

// CorruptError: a value does not have the form that its key promises.
type CorruptError struct {
	Key []byte
	Why string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store is damaged: key %q: %s", e.Key, e.Why)
}

func numberKey(kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, number)
}

func indexKey(kind byte, number uint64, index uint32) []byte {
	return binary.BigEndian.AppendUint32(numberKey(kind, number), index)
}

func outcomesKey(number, batch uint64) []byte {
	return binary.BigEndian.AppendUint64(numberKey(keyOutcomes, number), batch)
}

// numberRange is the range of all keys of one kind that belong to a number.
func numberRange(kind byte, number uint64) (from, to []byte) {
	return numberKey(kind, number), numberKey(kind, number+1)
}

// reader takes varints and byte strings from a value. Its first failure sticks.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// bytes returns a length-prefixed string, which shares memory with the value.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}
