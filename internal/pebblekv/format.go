package pebblekv

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrInUse is the error of opening a store that another process has open.
var ErrInUse = errors.New("another process has it open: stop that one, or choose another directory")

// VersionError is the error of opening a store of another format.
type VersionError struct {
	// Found is the format of the store, and Known the one that this program has.
	Found, Known uint64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the store has format %d, this program reads and writes format %d: use the version of sluice that wrote it", e.Found, e.Known)
}

// CorruptError is the error of a value that does not have the format of its key.
type CorruptError struct {
	Key []byte
	Why string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store is damaged: key %q: %s", e.Key, e.Why)
}

// Corrupt returns a *CorruptError with a copy of the key.
func Corrupt(key []byte, why string) error {
	return &CorruptError{append([]byte{}, key...), why}
}

// Unmarshal decodes a value in JSON; a failure is a *CorruptError.
func Unmarshal(key, value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return Corrupt(key, err.Error())
	}
	return nil
}

// Open opens the database in a directory, with a logger for Pebble's messages. It returns
// ErrInUse if another process has it open, and a *FileError with ErrLostWrites if its log has lost what was durable.
func Open(dir string, logger *slog.Logger, options pebble.Options) (*pebble.DB, error) {
	options.MemTableStopWritesThreshold = 4
	options.FormatMajorVersion = pebble.FormatValueSeparation
	options.Logger = Logger{cmp.Or(logger, slog.Default())}
	options.FS = aheadFS{cmp.Or(options.FS, vfs.Default)}
	if !options.ReadOnly {
		if err := prepareLog(dir, options); err != nil {
			return nil, inUse(err)
		}
	}
	db, err := pebble.Open(dir, &options)
	return db, inUse(err)
}

// inUse returns ErrInUse for the error of opening a database that another process has open, and other errors as they are.
func inUse(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return ErrInUse
	}
	return err
}

// prepareLog checks the newest log of a database, and makes a database that is new: Pebble begins its first log before it has
// the format in which records say what was synced.
func prepareLog(dir string, options pebble.Options) error {
	if Exists(options.FS, dir) {
		return checkLastLog(options.FS, dir)
	}
	db, err := pebble.Open(dir, &options)
	if err != nil {
		return err
	}
	return db.Close()
}

// Format checks the format version that a key holds. It writes known into an empty
// database and over versions from oldest on, which known includes. It refuses other
// versions, and a database that another program has written.
func Format(db *pebble.DB, key []byte, oldest, known uint64) error {
	version, err := Get(db, key)
	if err != nil {
		return err
	}
	if version == nil {
		err = Scan(db, nil, nil, func(key, _ []byte) (bool, error) {
			return false, Corrupt(key, "it was not written by this store")
		})
		if err != nil {
			return err
		}
	} else if found, _ := binary.Uvarint(version); found < oldest || found > known {
		return &VersionError{found, known}
	} else if found == known {
		return nil
	}
	return db.Set(key, binary.AppendUvarint(nil, known), pebble.Sync)
}

// Reader decodes varints and byte strings from a value. Its first failure makes it Bad.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Uvarint reads a varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Bad, r.Rest = true, nil
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Count reads a number that is not negative.
func (r *Reader) Count() int64 {
	v := r.Uvarint()
	if v > 1<<63-1 {
		r.Bad = true
		return 0
	}
	return int64(v)
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.Bad = true
		return 0
	}
	b := r.Rest[0]
	r.Rest = r.Rest[1:]
	return b
}

// Take reads n bytes, which share memory with the value; nil if there are fewer.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.Rest)) {
		r.Bad, r.Rest = true, nil
		return nil
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}

// Bytes reads a length-prefixed string, which shares memory with the value.
func (r *Reader) Bytes() []byte { return r.Take(r.Uvarint()) }

// Whole reports whether the value was read to its end, without a failure.
func (r *Reader) Whole() bool { return !r.Bad && len(r.Rest) == 0 }
