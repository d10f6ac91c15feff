package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// made returns an entry whose mark and data are functions of its sequence and a variant.
func made(sequence uint64, variant byte, size int) topic.Entry {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(sequence), byte(sequence >> 8), variant})
	_, _ = random.Read(data)
	if size > 0 {
		data[0] = variant
	}
	n := int64(sequence)
	return topic.Entry{Sequence: sequence, Mark: topic.Mark{Base: n, Next: n + 1, MaxTimestamp: n, Bytes: n}, Data: data}
}

// isMade returns what is wrong with an entry that was read, or nil.
func isMade(e topic.Entry) error {
	var variant byte
	if len(e.Data) > 0 {
		variant = e.Data[0]
	}
	if want := made(e.Sequence, variant, len(e.Data)); e.Mark != want.Mark || !bytes.Equal(e.Data, want.Data) {
		return fmt.Errorf("entry %d is %+v with %d bytes: it was not appended", e.Sequence, e.Mark, len(e.Data))
	}
	return nil
}

func logOf(t testing.TB, s topic.Store, name string) topic.Log {
	t.Helper()
	l, err := s.OpenLog(t.Context(), name, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// appendAll appends entries without waiting between them, and returns their outcomes.
func appendAll(l topic.Log, entries ...topic.Entry) []error {
	outcomes := make(chan error, len(entries))
	for _, e := range entries {
		l.Append(e, func(err error) { outcomes <- err })
	}
	errs := make([]error, len(entries))
	for i := range errs {
		errs[i] = <-outcomes
	}
	return errs
}

func mustAppend(t testing.TB, l topic.Log, entries ...topic.Entry) {
	t.Helper()
	if err := errors.Join(appendAll(l, entries...)...); err != nil {
		t.Fatal(err)
	}
}

// readAll reads a log, and checks that its entries follow each other and were appended.
func readAll(ctx context.Context, l topic.Log) ([]topic.Entry, error) {
	first, last, err := l.Ends(ctx)
	if err != nil {
		return nil, err
	}
	var all []topic.Entry
	for from := first; from <= last; {
		some, err := l.Read(ctx, from, 100_000)
		if err != nil {
			return all, err
		}
		if len(some) == 0 {
			return all, fmt.Errorf("no entry %d, the last is %d", from, last)
		}
		for _, e := range some {
			if err := isMade(e); err != nil || e.Sequence != from {
				return all, fmt.Errorf("read entry %d for %d: %w", e.Sequence, from, err)
			}
			from++
		}
		all = append(all, some...)
	}
	return all, nil
}

func holds(t testing.TB, l topic.Log, want ...topic.Entry) {
	t.Helper()
	got, err := readAll(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Sequence != want[i].Sequence || !bytes.Equal(got[i].Data, want[i].Data) {
			t.Fatalf("entry %d is not what was appended as %d", got[i].Sequence, want[i].Sequence)
		}
	}
}

// run returns made entries.
func run(first, last uint64, size int) []topic.Entry {
	var all []topic.Entry
	for sequence := first; sequence <= last; sequence++ {
		all = append(all, made(sequence, 1, size))
	}
	return all
}

// segments returns the paths of a log's files with an ending, in order.
func segments(t testing.TB, disk vfs.FS, ending string) []string {
	t.Helper()
	var paths []string
	dirs, err := disk.List("data/logs")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		names, err := disk.List(filepath.Join("data/logs", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ending) {
				paths = append(paths, filepath.Join("data/logs", dir, name))
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// change changes bytes of a file.
func change(t testing.TB, disk vfs.FS, path string, at int64, to func(byte) byte) {
	t.Helper()
	file, err := disk.OpenReadWrite(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] = to(b[0])
	if _, err := file.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// sizeOf returns the size of a file.
func sizeOf(t testing.TB, disk vfs.FS, path string) int64 {
	t.Helper()
	info, err := disk.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// endOf returns where a file ends without the zeros behind its content.
func endOf(t testing.TB, disk vfs.FS, path string) int64 {
	t.Helper()
	file, err := disk.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return int64(len(bytes.TrimRight(content, "\x00")))
}

// countingFS counts the open files of segments, and the bytes read of them.
type countingFS struct {
	vfs.FS
	files, most, read atomic.Int64
}

type countingFile struct {
	vfs.File
	of *countingFS
}

func (c *countingFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := c.FS.OpenReadWrite(name, category, options...)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	c.most.Store(max(c.most.Load(), c.files.Add(1)))
	return &countingFile{file, c}, nil
}

func (f *countingFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	f.of.read.Add(int64(n))
	return n, err
}

func (f *countingFile) Close() error {
	f.of.files.Add(-1)
	return f.File.Close()
}

// isDamage checks that an error says which file is damaged.
func isDamage(t testing.TB, err error, path string) {
	t.Helper()
	var damage *filestore.DamageError
	if !errors.As(err, &damage) || !errors.Is(err, topic.ErrCorrupt) || damage.Path != path {
		t.Fatalf("error is %v, want a *DamageError of %s", err, path)
	}
}
