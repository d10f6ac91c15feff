package pebblekv

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// ErrLostWrites is the error of a log with damage in what was durable.
var ErrLostWrites = errors.New(`a record that was durable is damaged, and later writes would be lost: "sluice doctor" says what else is; restore a backup`)

// Pebble's log consists of blocks, and these of chunks: a checksum, the length of the payload, the encoding, the number of the
// log, and in encodings from 9 on how many bytes of the log were synced before, all little-endian.
const (
	logBlock                       = 32 << 10
	plainHeader, numberedHeader    = 7, 11
	syncedHeader                   = 19
	firstNumbered, firstSynced     = 5, 9
	lastEncoding                   = 12
	atLength, atEncoding, atNumber = 4, 6, 7
	atSynced                       = 11
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkLastLog returns a *FileError if the newest log of a database is damaged where a later record says that it was durable.
// Pebble itself takes damage in the last 32 KiB of a log for the end that a power cut has torn, and drops what follows.
func checkLastLog(fs vfs.FS, dir string) error {
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: dir})
	if err != nil || len(logs) == 0 {
		return err
	}
	last := logs[len(logs)-1]
	fs, path := last.SegmentLocation(last.NumSegments() - 1)
	file, err := fs.Open(path)
	if err != nil {
		return &FileError{path, err}
	}
	content, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return &FileError{path, err}
	}
	if losesWrites(content, uint32(last.Num)) {
		return &FileError{path, ErrLostWrites}
	}
	return nil
}

// losesWrites reports whether a chunk after the first invalid one is valid, and says that the log was synced beyond that.
func losesWrites(log []byte, number uint32) bool {
	invalid := 0
	for invalid < len(log) {
		size, _ := chunk(log, invalid, number)
		if size == 0 {
			break
		}
		if invalid += size; logBlock-invalid%logBlock < syncedHeader { // no chunk begins there
			invalid += logBlock - invalid%logBlock
		}
	}
	for at := invalid + 1; at+syncedHeader <= len(log); at++ {
		if size, synced := chunk(log, at, number); size > 0 && synced > uint64(invalid) {
			return true
		}
	}
	return false
}

// chunk returns the size of the chunk at a position, and how much of the log was synced before it; 0 if there is no valid one.
func chunk(log []byte, at int, number uint32) (size int, synced uint64) {
	rest := log[at:min(len(log), at+logBlock-at%logBlock)]
	if len(rest) < plainHeader {
		return 0, 0
	}
	header, encoding := plainHeader, rest[atEncoding]
	switch {
	case encoding == 0 || encoding > lastEncoding:
		return 0, 0
	case encoding >= firstSynced:
		header = syncedHeader
	case encoding >= firstNumbered:
		header = numberedHeader
	}
	size = header + int(binary.LittleEndian.Uint16(rest[atLength:]))
	if size > len(rest) || encoding >= firstNumbered && binary.LittleEndian.Uint32(rest[atNumber:]) != number {
		return 0, 0
	}
	sum := crc32.Checksum(rest[atEncoding:size], castagnoli)
	if (sum>>15|sum<<17)+0xa282ead8 != binary.LittleEndian.Uint32(rest) { // as LevelDB masks it
		return 0, 0
	}
	if encoding >= firstSynced {
		synced = binary.LittleEndian.Uint64(rest[atSynced:])
	}
	return size, synced
}
