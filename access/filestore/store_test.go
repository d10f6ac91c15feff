package filestore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/filestore"
	"github.com/sluice-project/sluice/access/storetest"
)

// One process at a time uses a directory, so instances share one store.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open:  func(t testing.TB) access.Store { return filestore.New(t.TempDir()) },
		Again: func(_ testing.TB, store access.Store) access.Store { return store },
	})
}

// A crash may leave a part of a document beside the file; others may not read what is written.
func TestWriteReplacesTheWholeFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	write := func(document, version string) string {
		version, err := filestore.New(dir).Write(t.Context(), []byte(document), version)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	version := write("first", "")
	path := filepath.Join(dir, filestore.Name)
	if err := os.WriteFile(path+".new", []byte("of a crash, and longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if document, _, err := filestore.New(dir).Read(t.Context()); string(document) != "first" || err != nil {
		t.Errorf("after a crash: %q, %v", document, err)
	}
	write("second", version)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v, want the file alone", files, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want a file for its user only", info, err)
	}
	if document, err := os.ReadFile(path); string(document) != "second" || err != nil {
		t.Errorf("%q, %v", document, err)
	}
}
