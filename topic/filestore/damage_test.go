package filestore_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// damaged returns a disk with a closed store that has a log of several files.
func damaged(t testing.TB) (*vfs.MemFS, []topic.Entry) {
	disk := vfs.NewCrashableMem()
	s := open(t, "data", filestore.Options{FS: disk, SegmentBytes: 5000})
	entries := run(1, 30, 500)
	mustAppend(t, logOf(t, s, "log"), entries...)
	closed(t, s)
	return disk, entries
}

// A file in which a byte has changed is reported, or the byte has no meaning. Entries are
// never wrong, and never missing without an error.
func TestChangedByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		disk, entries := damaged(t)
		ending := rapid.SampledFrom([]string{".log", ".log", ".points"}).Draw(rt, "kind")
		path := rapid.SampledFrom(segments(t, disk, ending)).Draw(rt, "file")
		at := rapid.Int64Range(0, sizeOf(t, disk, path)-1).Draw(rt, "byte")
		flip := rapid.ByteRange(1, 255).Draw(rt, "flip")
		change(t, disk, path, at, func(b byte) byte { return b ^ flip })
		s := open(t, "data", filestore.Options{FS: disk})
		defer closed(t, s)
		l, err := s.OpenLog(t.Context(), "log", []int32{1})
		if err == nil {
			var got []topic.Entry
			if got, err = readAll(t.Context(), l); err == nil && len(got) != len(entries) {
				rt.Fatalf("byte %d of %s was changed: %d entries of %d, and no error", at, path, len(got), len(entries))
			}
		}
		if err != nil && ending == ".points" {
			rt.Fatalf("points are only a help: %v", err)
		}
		if err != nil {
			isDamage(t, err, path)
		}
	})
}

// Entries of other files can be read.
func TestDamageIsLocal(t *testing.T) {
	t.Parallel()
	disk, entries := damaged(t)
	path := segments(t, disk, ".log")[1]
	change(t, disk, path, 200, func(b byte) byte { return ^b })
	s := open(t, "data", filestore.Options{FS: disk})
	defer closed(t, s)
	l := logOf(t, s, "log")
	got, err := readAll(t.Context(), l)
	isDamage(t, err, path)
	if len(got) == 0 {
		t.Fatal("nothing was read before the damage")
	}
	last, err := l.Read(t.Context(), 30, 1)
	if err != nil || len(last) != 1 {
		t.Fatalf("the last entry: %v", err)
	}
	mustAppend(t, l, made(uint64(len(entries)+1), 1, 10))
}

// A missing or shortened file is reported, instead of a log that is shorter.
func TestMissingFiles(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(disk *vfs.MemFS, paths []string) (reported string){
		"first": func(disk *vfs.MemFS, paths []string) string {
			_ = disk.Remove(paths[0])
			return "data/logs/log.1"
		},
		"in the middle": func(disk *vfs.MemFS, paths []string) string {
			_ = disk.Remove(paths[1])
			return paths[0]
		},
		"all": func(disk *vfs.MemFS, paths []string) string {
			for _, path := range paths {
				_ = disk.Remove(path)
			}
			return "data/logs/log.1"
		},
		"the end of the last": func(disk *vfs.MemFS, paths []string) string {
			path := paths[len(paths)-1]
			file, _ := disk.Open(path)
			start := make([]byte, 700)
			_, _ = file.ReadAt(start, 0)
			_ = file.Close()
			file, _ = disk.Create(path, "test")
			_, _ = file.Write(start)
			_ = file.Close()
			return path
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, _ := damaged(t)
			path := harm(disk, segments(t, disk, ".log"))
			s := open(t, "data", filestore.Options{FS: disk})
			defer closed(t, s)
			l, err := s.OpenLog(t.Context(), "log", []int32{1})
			if err == nil {
				_, err = readAll(t.Context(), l)
			}
			isDamage(t, err, path)
		})
	}
}

// An entry that was durable when a later one was written is missed, even if the store was not
// closed; one that was not is cut off.
func TestDamageBeforeDurableEntries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		entry   int64 // from the end
		damaged bool
	}{{3, true}, {2, true}, {1, false}} {
		disk := vfs.NewCrashableMem()
		s := open(t, "data", filestore.Options{FS: disk})
		for _, e := range run(1, 10, 500) {
			mustAppend(t, logOf(t, s, "log"), e)
		}
		left := disk.CrashClone(vfs.CrashCloneCfg{})
		closed(t, s)
		path := segments(t, left, ".log")[0]
		change(t, left, path, endOf(t, left, path)-test.entry*(500+76)+100, func(b byte) byte { return ^b })
		s = open(t, "data", filestore.Options{FS: left})
		l, err := s.OpenLog(t.Context(), "log", []int32{1})
		if test.damaged {
			isDamage(t, err, path)
		} else {
			holds(t, l, run(1, 9, 500)...)
			mustAppend(t, l, made(10, 2, 500))
		}
		closed(t, s)
	}
}

// Whole entries behind a torn one never continue the log, also if what is appended in place of
// the torn one is as long.
func TestEntriesBehindATornOne(t *testing.T) {
	t.Parallel()
	disk := newFaultyDisk()
	s := open(t, "data", filestore.Options{FS: disk})
	l := logOf(t, s, "log")
	wait, release := disk.hold()
	outcomes := make(chan error, 3)
	for i, e := range run(1, 3, 500) {
		l.Append(e, func(err error) { outcomes <- err })
		if i == 0 {
			wait() // the others are written together
		}
	}
	release()
	for range 3 {
		if err := <-outcomes; err != nil {
			t.Fatal(err)
		}
	}
	left := disk.under.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	path := segments(t, left, ".log")[0]
	change(t, left, path, endOf(t, left, path)-2*(500+76)+100, func(b byte) byte { return ^b })
	for range 2 {
		s = open(t, "data", filestore.Options{FS: left})
		l = logOf(t, s, "log")
		if _, last, _ := l.Ends(t.Context()); last == 1 {
			mustAppend(t, l, made(2, 2, 500))
		}
		holds(t, l, made(1, 1, 500), made(2, 2, 500))
		left = left.CrashClone(vfs.CrashCloneCfg{})
		closed(t, s)
	}
}

// A directory of another kind is refused, and stays as it is.
func TestFormat(t *testing.T) {
	t.Parallel()
	for content, standalone := range map[string]bool{
		"sluice topic, standalone, format 1\n": true, "sluice topic, files, format 2\n": false,
		"sluice topic, cluster c, node 1, format 1\n": false, "": false,
	} {
		disk := vfs.NewMem()
		_ = disk.MkdirAll("data", 0o755)
		file, err := disk.Create("data/FORMAT", "test")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Write([]byte(content))
		_ = file.Close()
		_, err = filestore.Open("data", filestore.Options{FS: disk})
		var format *filestore.FormatError
		if !errors.As(err, &format) || format.Standalone() != standalone {
			t.Errorf("open of %q: %v", content, err)
		}
		if names, _ := disk.List("data"); len(names) != 2 { // with the lock
			t.Errorf("open of %q leaves %v", content, names)
		}
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	s := open(t, "data", filestore.Options{FS: disk})
	if _, err := filestore.Open("data", filestore.Options{FS: disk}); !errors.Is(err, filestore.ErrInUse) {
		t.Fatalf("opened twice: %v", err)
	}
	closed(t, s)
	closed(t, open(t, "data", filestore.Options{FS: disk}))
}
