package pebblekv_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// logged returns a disk after a power cut, with writes of which all but the last were acknowledged, and the path of the log.
func logged(t *testing.T, writes, unsyncedPercent int, random *rand.Rand) (disk *vfs.MemFS, path string) {
	t.Helper()
	disk = vfs.NewCrashableMem()
	db, err := pebblekv.Open("data", slog.New(slog.DiscardHandler), pebble.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	for i := range writes {
		err = errors.Join(err, db.Set(fmt.Appendf(nil, "key-%d", i), make([]byte, 300), pebble.Sync))
	}
	for i := range 20 {
		err = errors.Join(err, db.Set(fmt.Appendf(nil, "unsynced-%d", i), make([]byte, 3000), pebble.NoSync))
	}
	after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: random})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	names, _ := after.List("data")
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			path = max(path, "data/"+name)
		}
	}
	return after, path
}

// present returns how many of the acknowledged writes a database has.
func present(t *testing.T, disk vfs.FS, writes int) (found int, err error) {
	t.Helper()
	db, err := pebblekv.Open("data", slog.New(slog.DiscardHandler), pebble.Options{FS: disk})
	if err != nil {
		return 0, err
	}
	for i := range writes {
		value, err := pebblekv.Get(db, fmt.Appendf(nil, "key-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if value != nil {
			found++
		}
	}
	return found, db.Close()
}

// A byte of an acknowledged write that changes in the log is reported when the database is opened, and the file is named.
// The writes at the very end are the exception: no later record says that they were durable.
func TestDamagedLogIsRefused(t *testing.T) {
	t.Parallel()
	for _, writes := range []int{40, 400} { // within the last block of the log, and in an earlier one
		refused := 0
		const places = 60
		for i := range places {
			disk, path := logged(t, writes, 0, nil)
			file, err := disk.OpenReadWrite(path, "test")
			if err != nil {
				t.Fatal(err)
			}
			at := int64(writes) * 320 * 9 / 10 * int64(i) / places
			changed := make([]byte, 1)
			_, err = file.ReadAt(changed, at)
			changed[0] ^= 0x10
			_, written := file.WriteAt(changed, at)
			if err = errors.Join(err, written, file.Close()); err != nil {
				t.Fatal(err)
			}
			found, err := present(t, disk, writes)
			switch {
			case err != nil && strings.Contains(err.Error(), strings.TrimPrefix(path, "data/")):
				refused++
			case err != nil || found != writes:
				t.Errorf("byte %d of %s was changed: %d of %d writes are there, %v", at, path, found, writes, err)
			}
		}
		if refused < places*9/10 {
			t.Errorf("of %d logs with a changed byte %d were refused", places, refused)
		}
	}
}

// A power cut tears what was not synced in any way. The database opens, and has all that was acknowledged.
func TestTornLogIsOpened(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		writes := 1 + random.IntN(300)
		disk, path := logged(t, writes, random.IntN(101), random)
		if found, err := present(t, disk, writes); err != nil || found != writes {
			t.Errorf("seed %d: %d of %d writes are there, %v; the log is %s", seed, found, writes, err, path)
		}
	}
}
