package filestore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic/filestore"
)

func verify(t testing.TB, disk vfs.FS) (problems []error, bytes int64) {
	problems = filestore.Verify(t.Context(), "data", filestore.Options{FS: disk}, func(n int64) { bytes += n })
	return problems, bytes
}

// A sound store has no problems, closed or killed, and is not changed.
func TestVerifySound(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := open(t, "data", filestore.Options{FS: disk, SegmentBytes: 5000})
	mustAppend(t, logOf(t, s, "log"), run(1, 30, 500)...)
	killed := disk.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	for _, disk := range []*vfs.MemFS{disk, killed} {
		before := disk.String()
		if problems, bytes := verify(t, disk); len(problems) > 0 || bytes < 30*500 {
			t.Errorf("%d bytes, %v", bytes, problems)
		}
		if after := disk.String(); after != before {
			t.Errorf("it has changed from\n%s\nto\n%s", before, after)
		}
	}
}

// A byte that is flipped in a segment, its points or the mark is found, and the file is named.
func TestVerifyFindsFlippedBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		disk, _ := damaged(t)
		path := rapid.SampledFrom(append(append(segments(t, disk, ".log"), segments(t, disk, ".points")...), "data/FORMAT")).Draw(rt, "file")
		at := rapid.Int64Range(0, endOf(t, disk, path)-1).Draw(rt, "byte")
		change(t, disk, path, at, func(b byte) byte { return b ^ rapid.ByteRange(1, 255).Draw(rt, "flip") })
		problems, _ := verify(t, disk)
		if path == "data/FORMAT" {
			if len(problems) != 1 || !errors.As(problems[0], new(*filestore.FormatError)) {
				rt.Fatalf("the mark has changed: %v", problems)
			}
			return
		}
		if len(problems) == 0 || !strings.Contains(problems[0].Error(), path) {
			rt.Fatalf("byte %d of %s was changed: %v", at, path, problems)
		}
	})
}

// A write that was in progress when the machine stopped is a notice: the next start cuts it off.
func TestVerifyTornTail(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := open(t, "data", filestore.Options{FS: disk})
	mustAppend(t, logOf(t, s, "log"), run(1, 3, 500)...)
	killed := disk.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	path := segments(t, killed, ".log")[0]
	change(t, killed, path, 1400, func(b byte) byte { return ^b })
	problems, _ := verify(t, killed)
	var notice *filestore.NoticeError
	if len(problems) != 1 || !errors.As(problems[0], &notice) || notice.Path != path {
		t.Errorf("problems are %v, want a notice of %s", problems, path)
	}
	closed(t, open(t, "data", filestore.Options{FS: killed}))
}

// All that is missing is told, and the damage of one log does not hide that of another.
func TestVerifyFindsMissingFiles(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	s := open(t, "data", filestore.Options{FS: disk, SegmentBytes: 5000})
	for _, name := range []string{"a", "b", "c"} {
		mustAppend(t, logOf(t, s, name), run(1, 30, 500)...)
	}
	closed(t, s)
	all := segments(t, disk, ".log")
	_ = disk.Remove(all[0])             // the first of a
	_ = disk.Remove(all[len(all)/3+1])  // the second of b
	_ = disk.RemoveAll("data/logs/c.3") // all of c
	problems, _ := verify(t, disk)
	for i, want := range []string{"data/logs/a.1", "data/logs/b.2", "data/logs/c.3"} {
		if len(problems) <= i || !strings.Contains(problems[i].Error(), want) {
			t.Errorf("problems are %v, want %s", problems, want)
		}
	}
	_ = disk.Remove("data/FORMAT")
	if problems, _ := verify(t, disk); len(problems) != 1 || !strings.Contains(problems[0].Error(), "data/FORMAT") {
		t.Errorf("the mark is missing: %v", problems)
	}
}
