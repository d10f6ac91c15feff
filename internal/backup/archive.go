package backup

import (
	"archive/tar"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"time"
)

const (
	// Format is the format of a full backup.
	Format = 1
	// IncrementalFormat is the format of a backup that continues another. This program writes and reads both.
	IncrementalFormat = 2

	descriptionName = "sluice-backup.json"
	sumsName        = "sluice-backup.sha256"
	// The most bytes of the description and of the checksums: of about 500,000 files.
	maxDescription = 1 << 20
	maxSums        = 64 << 20

	// beganRecord is the record of a tar's header that has the state of the checksum of a file after
	// what its base has of it. stateLength is the length of a state, which ends with the count of bytes.
	beganRecord = "SLUICE.began"
	stateLength = 108
)

// Description describes a backup.
type Description struct {
	Format int `json:"format"`
	// TakenAt is when it was begun: it has everything acknowledged before.
	TakenAt time.Time `json:"taken_at"`
	// Base is the backup that it continues; nil: it is a full one.
	Base *Reference `json:"base,omitempty"`
	// Parts are those that it has: bulk, room, topic.
	Parts []string `json:"parts"`
	// Elsewhere is where the parts are that the server keeps elsewhere, so that the backup lacks
	// them.
	Elsewhere map[string]string `json:"elsewhere,omitempty"`
	// Files and Bytes count the files, and what is in them, with what the base has of it.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Reference names a backup.
type Reference struct {
	// ID is the SHA-256 of its list of checksums, in hexadecimal. No two backups have the same.
	ID      string    `json:"id" minLength:"64" maxLength:"64" doc:"The SHA-256 of its file sluice-backup.sha256, in hexadecimal."`
	TakenAt time.Time `json:"taken_at" doc:"As its description has it."`
}

// String returns what a person recognizes it by.
func (r Reference) String() string {
	return fmt.Sprintf("the backup of %s (%.12s)", r.TakenAt.UTC().Format(time.DateTime+" UTC"), r.ID)
}

// FileSum is what is known of a file in a backup.
type FileSum struct {
	Size   int64  `json:"size" minimum:"0" doc:"In bytes."`
	SHA256 string `json:"sha256" minLength:"64" maxLength:"64" doc:"In hexadecimal."`
}

// Inventory is what a backup has, by the paths of the files below the data directory.
type Inventory struct {
	Reference
	Files map[string]FileSum `json:"files" doc:"The files of the data directory that it has, by their paths."`
}

// Entry is a file as a backup has it: the bytes that follow those which the base has of it.
type Entry struct {
	Name string
	// Size is how many bytes the backup has.
	Size int64
	// Base is the file of the base whose bytes come before them: the whole file. Of none the size is 0.
	Base FileSum

	sum hash.Hash // has seen the bytes of Base
}

// entryOf returns the entry of a header.
func entryOf(header *tar.Header) (Entry, error) {
	e := Entry{Name: header.Name, Size: header.Size, sum: sha256.New()}
	text := header.PAXRecords[beganRecord]
	if text == "" {
		return e, nil
	}
	state, err := hex.DecodeString(text)
	if err != nil || len(state) != stateLength || e.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state) != nil {
		return e, &DamageError{header.Name, "what its base has of it is not readable"}
	}
	e.Base = FileSum{seenBytes(state), hex.EncodeToString(e.sum.Sum(nil))}
	if e.Base.Size <= 0 {
		return e, &DamageError{header.Name, "what its base has of it is not readable"}
	}
	return e, nil
}

// DamageError reports that a backup is not as it was written.
type DamageError struct {
	// Path is the damaged file in the backup; empty if it is the backup as a whole.
	Path string
	Why  string
}

func (e *DamageError) Error() string {
	if e.Path == "" {
		return "the backup is damaged: " + e.Why
	}
	return fmt.Sprintf("the backup is damaged: %s: %s", e.Path, e.Why)
}

var errEndsEarly = &DamageError{Why: "it ends before its checksums: it was not written to its end"}

// seenBytes returns how many bytes a checksum has seen, from its state.
func seenBytes(state []byte) int64 { return int64(binary.BigEndian.Uint64(state[len(state)-8:])) }
