package filestore_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// While entries are appended to two logs in turn, the metadata counts the pairs, and both logs are
// trimmed, checkpoints are taken. Each has everything acknowledged before it, and is as of one
// moment: a pair is begun only when the one before is counted.
func TestCheckpointIsOfOneMoment(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	s := open(t, "data", filestore.Options{FS: disk, SegmentBytes: 5000})
	defer closed(t, s)
	p := newPairs(t, s)
	var writing sync.WaitGroup
	stop := make(chan struct{})
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.write()
			}
		}
	})
	for i := range 8 {
		before := p.written()
		dir := fmt.Sprintf("checkpoint-%d", i)
		sizes, err := s.Checkpoint(dir, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for p.written() < before+20 { // what is written after it does not belong to it
			runtime.Gosched()
		}
		restored := copied(t, disk, dir, sizes)
		p.check(open(t, "data", filestore.Options{FS: restored}), before)
	}
	close(stop)
	writing.Wait()
}

// pairs are entries of two logs, counted in the metadata.
type pairs struct {
	t    *testing.T
	s    *filestore.Store
	a, b topic.Log

	mu    sync.Mutex
	count uint64
}

func newPairs(t *testing.T, s *filestore.Store) *pairs {
	return &pairs{t: t, s: s, a: logOf(t, s, "a"), b: logOf(t, s, "b")}
}

func (p *pairs) written() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// write writes a pair and counts it; every 50 pairs the logs are trimmed to the last 10, and a
// log is made and another deleted.
func (p *pairs) write() {
	ctx, n := p.t.Context(), p.written()+1
	for _, l := range []topic.Log{p.a, p.b} {
		if err := appendAll(l, made(n, 1, 300))[0]; err != nil {
			p.t.Error(err)
		}
	}
	item, _ := p.s.Meta().Get(ctx, "count")
	if _, err := p.s.Meta().Put(ctx, "count", strconv.AppendUint(nil, n, 10), item.Revision); err != nil {
		p.t.Error(err)
	}
	p.mu.Lock()
	p.count = n
	p.mu.Unlock()
	if n%50 != 0 {
		return
	}
	logOf(p.t, p.s, fmt.Sprint("made-", n))
	if err := p.s.DeleteLog(ctx, fmt.Sprint("made-", n-50)); err != nil {
		p.t.Error(err)
	}
	for _, l := range []topic.Log{p.a, p.b} {
		if err := l.Trim(ctx, n-10); err != nil {
			p.t.Error(err)
		}
	}
}

// check checks a restored store, and closes it.
func (p *pairs) check(s *filestore.Store, before uint64) {
	p.t.Helper()
	defer closed(p.t, s)
	var last [2]uint64
	for i, name := range []string{"a", "b"} {
		entries, err := readAll(p.t.Context(), logOf(p.t, s, name))
		if err != nil {
			p.t.Fatal(err)
		}
		if len(entries) > 0 {
			last[i] = entries[len(entries)-1].Sequence
		}
	}
	counted := uint64(0)
	if item, err := s.Meta().Get(p.t.Context(), "count"); err == nil {
		counted, _ = strconv.ParseUint(string(item.Value), 10, 64)
	}
	if counted < before || last[1] < counted || last[0] < last[1] || last[0] > counted+1 {
		p.t.Errorf("%d pairs were counted before; the checkpoint has %d, and the logs end at %v", before, counted, last)
	}
}

// copied returns a disk with what belongs to a checkpoint.
func copied(t *testing.T, from *vfs.MemFS, dir string, sizes map[string]int64) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	var walk func(below string)
	walk = func(below string) {
		_ = to.MkdirAll(to.PathJoin("data", below), 0o755)
		names, err := from.List(from.PathJoin(dir, below))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			name = from.PathJoin(below, name)
			if info, err := from.Stat(from.PathJoin(dir, name)); err != nil || info.IsDir() {
				walk(name)
				continue
			}
			file, err := from.Open(from.PathJoin(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			content, _ := io.ReadAll(file)
			_ = file.Close()
			if size, grows := sizes[name]; grows {
				content = content[:min(size, int64(len(content)))]
			}
			into, _ := to.Create(to.PathJoin("data", name), "test")
			_, _ = into.Write(content)
			_ = into.Close()
		}
	}
	walk(".")
	return to
}

// Nothing is acknowledged at the moment of a checkpoint, and afterwards everything is.
func TestCheckpointStopsWriting(t *testing.T) {
	t.Parallel()
	s := open(t, "data", filestore.Options{FS: vfs.NewMem()})
	defer closed(t, s)
	l, done, put := logOf(t, s, "log"), make(chan error, 1), make(chan error, 1)
	_, err := s.Checkpoint("checkpoint", func() error {
		l.Append(made(1, 1, 100), func(err error) { done <- err })
		go func() {
			_, err := s.Meta().Put(t.Context(), "key", []byte("value"), 0)
			put <- err
		}()
		for range 10_000 {
			runtime.Gosched()
		}
		if len(done) > 0 || len(put) > 0 {
			t.Error("something was written")
		}
		return nil
	})
	if err := errors.Join(err, <-done, <-put); err != nil {
		t.Error(err)
	}
}
