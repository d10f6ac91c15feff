package pebblestore_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// contents returns the files of a directory; the lock is an empty file.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestImageChangesNothing checks that an image locks its store and changes nothing, and that
// opening a directory without a store changes nothing either.
func TestImageChangesNothing(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	options := pebblestore.Options{Logger: slog.New(slog.DiscardHandler)}
	if _, err := pebblestore.OpenImage(filepath.Join(dir, "none"), options); !errors.Is(err, pebblestore.ErrNoStore) {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if _, err := pebblestore.OpenImage(dir, options); !errors.Is(err, pebblestore.ErrNoStore) {
		t.Errorf("an empty directory: %v", err)
	}
	if found := contents(t, dir); len(found) > 0 {
		t.Errorf("looking for a store has made %v", found)
	}
	store, err := pebblestore.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Create(ctx, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Append(ctx, "a", 0, [][]byte{[]byte("1"), []byte("22")}); err != nil {
		t.Fatal(err)
	}
	// In another process the error would be ErrInUse.
	if _, err := pebblestore.OpenImage(dir, options); err == nil || !strings.Contains(err.Error(), "lock held") {
		t.Errorf("a store that is open: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	image, err := pebblestore.OpenImage(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pebblestore.Open(dir, options); err == nil || !strings.Contains(err.Error(), "lock held") {
		t.Errorf("opening a store that is read: %v", err)
	}
	summary, err := bulk.SummarizeImage(image)
	if err != nil || summary.Jobs != 2 || summary.Waiting != 2 || summary.Unfinished != 1 {
		t.Errorf("the image has %+v, %v", summary, err)
	}
	if err := image.Close(); err != nil {
		t.Fatal(err)
	}
	after := contents(t, dir)
	for path, text := range before {
		if after[path] != text {
			t.Errorf("%s was changed", path)
		}
	}
	if len(after) != len(before) {
		t.Errorf("there are %d files, which were %d", len(after), len(before))
	}
}

// TestMovedStoreIsNotOpened checks that a migrated store cannot be opened until the file that
// records the migration is removed. A store whose migration has only begun can be opened.
func TestMovedStoreIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	options := pebblestore.Options{Logger: slog.New(slog.DiscardHandler)}
	open := func() error {
		store, err := pebblestore.Open(dir, options)
		if err == nil {
			err = store.Close()
		}
		return err
	}
	moved := pebblestore.Migration{ID: "x", To: "redis://there", BegunAt: time.Now().UTC()}
	set := func() {
		t.Helper()
		image, err := pebblestore.OpenImage(dir, options)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(image.SetMigration(moved), image.Close()); err != nil {
			t.Fatal(err)
		}
		if image, err = pebblestore.OpenImage(dir, options); err != nil {
			t.Fatal(err)
		}
		got, err := image.Migration()
		if err := errors.Join(err, image.Close()); err != nil || got != moved {
			t.Errorf("it was moved as %+v, %v; want %+v", got, err, moved)
		}
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	set()
	if err := open(); err != nil {
		t.Errorf("a store whose transition has begun: %v", err)
	}
	moved.EndedAt = time.Now().UTC()
	set()
	var refused *pebblestore.MigratedError
	if err := open(); !errors.As(err, &refused) || refused.Migration != moved {
		t.Errorf("a store that was moved: %v", err)
	}
	if err := os.Remove(refused.File); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("after the file is gone: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, pebblestore.MigrationFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(); err == nil {
		t.Error("a store opens whose file cannot be read")
	}
}
