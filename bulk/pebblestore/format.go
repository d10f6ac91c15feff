package pebblestore

import (
	"encoding/binary"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// FormatVersion is the version of the stored format. A store of version 1, 2 or 3 becomes
// one of version 4 when it is opened: version 1 has no outbox, version 2 no schedules
// either, and version 3 no streams. Stores of other versions are refused.
const FormatVersion = 4

// The first byte of a key is its kind.
const (
	keyMeta     = 'M' // name → value
	keyAction   = 'a' // number → the action's record, JSON
	keyID       = 'i' // id → number
	keyLive     = 'l' // number → the bytes of its payloads, nothing if there are none: the action is unfinished
	keyPayloads = 'p' // number, first index → a page of payloads
	keyLog      = 's' // number, page → the log of a page's jobs
	keyOutcomes = 'o' // number, batch → a batch of outcomes
	keyDead     = 'd' // number, index → a dead letter
	keyResult   = 'v' // number, index → 1 if the result was too large, else 0 and the result
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
	metaSecret   = []byte("Msecret")   // 32 random bytes, since the store was first opened
	metaRevision = []byte("Mrevision") // the highest revision given to a schedule
)

type (
	// VersionError is the error of Open for a store of another format.
	VersionError = pebblekv.VersionError
	// CorruptError is the error of a value that does not have the format of its key.
	CorruptError = pebblekv.CorruptError
)

func numberKey(kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, number)
}

func indexKey(kind byte, number uint64, index uint32) []byte {
	return binary.BigEndian.AppendUint32(numberKey(kind, number), index)
}

func outcomesKey(number, batch uint64) []byte {
	return binary.BigEndian.AppendUint64(numberKey(keyOutcomes, number), batch)
}

// numberRange returns the range of the keys of one kind of an action.
func numberRange(kind byte, number uint64) (from, to []byte) {
	return numberKey(kind, number), numberKey(kind, number+1)
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}
