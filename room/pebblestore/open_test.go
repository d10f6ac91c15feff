package pebblestore_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/pebblestore"
)

func openDir(dir string) (*pebblestore.Store, error) {
	return pebblestore.Open(dir, pebblestore.Options{Logger: slog.New(slog.DiscardHandler)})
}

// quiet is a logger of Pebble.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// write writes one key into a directory.
func write(t *testing.T, dir string, key, value []byte) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set(key, value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// This version opens stores of its own format and of format 1.
func TestOpenRefusesForeignAndFuture(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, []byte("x"), nil)
	var corrupt *pebblestore.CorruptError
	if _, err := openDir(dir); !errors.As(err, &corrupt) {
		t.Errorf("a directory of something else: %v, want a CorruptError", err)
	}
	dir = t.TempDir()
	write(t, dir, []byte("Mversion"), []byte{9})
	var version *pebblestore.VersionError
	if _, err := openDir(dir); !errors.As(err, &version) || version.Found != 9 {
		t.Errorf("a store of format 9: %v, want a VersionError", err)
	}
}

// TestOpenConvertsFormat1 checks that a store of format 1 opens: its visitors have no
// fingerprints, and any ticket with their number is theirs.
func TestOpenConvertsFormat1(t *testing.T) {
	dir := t.TempDir()
	s, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	terms := room.Terms{Room: "shop", MaxWaiting: 10, Abandon: time.Hour}
	if terms.Revision, err = s.PutRoom(t.Context(), "shop", nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enter(t.Context(), terms, room.Arrival{}); err != nil { // as format 1 has it
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, []byte("Mversion"), []byte{1})
	if s, err = openDir(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	places, err := s.Ask(t.Context(), terms, []room.Bearer{{Number: 1, Fingerprint: 7}}, true)
	if err != nil || places[0].State != room.Waiting {
		t.Errorf("the visitor of format 1 is %+v, %v; want it to wait", places, err)
	}
}

// A damaged value is named, and nothing is guessed.
func TestOpenRefusesDamage(t *testing.T) {
	of := func(kind string) []byte { return []byte("x\x00\x00\x00\x00\x00\x00\x00\x01" + kind) }
	number := "\x00\x00\x00\x00\x00\x00\x00\x01"
	for name, at := range map[string][2][]byte{
		"revision":            {[]byte("Mrevision"), {0x80}},
		"keys":                {[]byte("Mkeys"), []byte("secret")},
		"room":                {[]byte("rshop"), {0x01}},
		"counts":              {of("c"), {0x01}},
		"visitor":             {of("v" + number), {0x0f}},
		"visitor's number":    {of("v\x01"), {0x01}},
		"negative number":     {of("v\x80\x00\x00\x00\x00\x00\x00\x00"), {0x01}},
		"visitor of a closed": {of("v\x00\x00\x00\x00\x00\x00\x10\x01"), {0x01}},
		"key of another":      {of("v" + "\x00\x00\x00\x00\x00\x00\x30\x05"), []byte("\x41keykeykeykeykey!")},
		"gone":                {of("g" + number), {0x01, 0x05, 0x01}},
		"events":              {of("e" + number), {0x01}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := openDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.PutRoom(t.Context(), "shop", nil, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			write(t, dir, of("g"+number), []byte{0x01, 0x05, 0x80, 0x20})
			write(t, dir, of("v\x00\x00\x00\x00\x00\x00\x30\x04"), []byte("\x41keykeykeykeykey!"))
			if s, err = openDir(dir); err != nil {
				t.Fatalf("before the damage: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			write(t, dir, at[0], at[1])
			var corrupt *pebblestore.CorruptError
			if _, err = openDir(dir); !errors.As(err, &corrupt) || string(corrupt.Key) != string(at[0]) {
				t.Errorf("with a damaged value: %v, want a CorruptError that names %q", err, at[0])
			}
		})
	}
}

// lockedDisk is a disk on which another process has the lock.
type lockedDisk struct{ vfs.FS }

func (lockedDisk) Lock(string) (io.Closer, error) { return nil, syscall.EAGAIN }

// Only one process can open a directory.
func TestOpenInUse(t *testing.T) {
	_, err := pebblestore.Open("data", pebblestore.Options{FS: lockedDisk{vfs.NewMem()}, Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, pebblestore.ErrInUse) {
		t.Errorf("opened while another process has it: %v, want ErrInUse", err)
	}
}
