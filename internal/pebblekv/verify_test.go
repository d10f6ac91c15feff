package pebblekv_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

var formatKey = []byte("format")

// stored returns a disk with a database that has tables and logs, closed or as a kill leaves it.
func stored(t *testing.T, killed bool) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	db, err := pebblekv.Open("data", slog.New(slog.DiscardHandler), pebble.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	err = pebblekv.Format(db, formatKey, 1, 1)
	for i := range 300 {
		err = errors.Join(err, db.Set(fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte{byte(i)}, 300), pebble.Sync))
		if i == 250 {
			err = errors.Join(err, db.Flush())
		}
	}
	after := disk
	if killed {
		after = disk.CrashClone(vfs.CrashCloneCfg{})
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return after
}

func verify(t *testing.T, disk vfs.FS, known uint64) []error {
	t.Helper()
	return pebblekv.Verify(t.Context(), disk, "data", formatKey, 1, known, func(*pebble.DB) error { return nil })
}

// A sound database has no problems. A byte that is flipped anywhere in a table, a log or the manifest
// is found and the file is named, also where Pebble would drop what follows in silence. The footer of
// a table, which has no checksum, may have bytes without a meaning.
func TestVerifyFindsFlippedBytes(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		disk := stored(t, killed)
		if problems := verify(t, disk, 1); len(problems) > 0 {
			t.Fatalf("a sound one, killed %t: %v", killed, problems)
		}
		names, _ := disk.List("data")
		kinds := map[string]int{}
		for _, name := range names {
			kind := strings.TrimLeft(name, "0123456789")
			if strings.HasPrefix(name, "MANIFEST-") {
				kind = "manifest"
			} else if kind != ".sst" && kind != ".log" {
				continue
			}
			kinds[kind]++
			flipEach(t, disk, "data/"+name)
		}
		if len(kinds) != 3 {
			t.Errorf("the files are of the kinds %v, want three", kinds)
		}
	}
}

// footer is the length of the footer of a table.
const footer = 61

func flipEach(t *testing.T, disk *vfs.MemFS, path string) {
	t.Helper()
	file, err := disk.OpenReadWrite(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	info, _ := file.Stat()
	content := make([]byte, info.Size())
	_, _ = file.ReadAt(content, 0)
	used := int64(len(bytes.TrimRight(content, "\x00")))
	if strings.HasSuffix(path, ".sst") {
		used -= footer
	} else if strings.HasSuffix(path, ".log") {
		used -= 11 // the mark of an orderly end has no checksum
	}
	for at := int64(0); at < used; at += max(1, used/40) {
		_, _ = file.WriteAt([]byte{content[at] ^ 0x10}, at)
		problems := verify(t, disk, 1)
		_, _ = file.WriteAt(content[at:at+1], at)
		var named *pebblekv.FileError
		if len(problems) == 0 || !errors.As(problems[0], &named) || named.Path != path {
			t.Errorf("byte %d of %d of %s was flipped: %v", at, used, path, problems)
		}
	}
	_ = file.Close()
}

// A format that is too new, a database that is open, and missing files are told.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	disk := stored(t, false)
	if problems := verify(t, disk, 0); len(problems) != 1 || !errors.As(problems[0], new(*pebblekv.VersionError)) {
		t.Errorf("a newer format: %v", problems)
	}
	db, err := pebblekv.Open("data", slog.New(slog.DiscardHandler), pebble.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	names, _ := disk.List("data")
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") || strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "marker.") {
			disk := stored(t, false)
			if disk.Remove("data/"+name) != nil {
				continue
			}
			if problems := verify(t, disk, 1); len(problems) == 0 || !pebblekv.Exists(disk, "data") {
				t.Errorf("%s is missing: %v", name, problems)
			}
		}
	}
}
