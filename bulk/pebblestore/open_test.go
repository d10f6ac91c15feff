package pebblestore_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/bulk/pebblestore"
)

func open(dir string) (*pebblestore.Store, error) {
	return pebblestore.Open(dir, pebblestore.Options{Logger: slog.New(slog.DiscardHandler)})
}

// TestOpenRefusesForeignAndFuture checks that stores of other versions are refused.
func TestOpenRefusesForeignAndFuture(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("x"), nil, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	var corrupt *pebblestore.CorruptError
	if _, err := open(dir); !errors.As(err, &corrupt) {
		t.Errorf("a directory of something else: %v, want a CorruptError", err)
	}

	dir = t.TempDir()
	if db, err = pebble.Open(dir, &pebble.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("Mversion"), []byte{9}, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	var version *pebblestore.VersionError
	if _, err := open(dir); !errors.As(err, &version) || version.Found != 9 {
		t.Errorf("a store of format 9: %v, want a VersionError", err)
	}

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(filepath.Join(dir, "file")); err == nil {
		t.Error("a file was opened as a directory")
	}
}
