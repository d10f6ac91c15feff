package filestore

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
)

// fuzzSalt is the number of the segments of fuzz targets, so that inputs can have frames.
const fuzzSalt = 0x1122334455667788

// frames returns frames of the given sizes, from sequence 1 on.
func frames(sizes ...int) []byte {
	var b []byte
	for i, size := range sizes {
		data := bytes.Repeat([]byte{byte(i + 1)}, size)
		b = appendHeader(b, fuzzSalt, frame{
			sequence: uint64(i + 1), length: size, sum: sumOf(data), durable: int64(preambleBytes + len(b)), mark: topic.Mark{Base: int64(i)},
		})
		b = append(b, data...)
	}
	return b
}

// FuzzSegment opens a segment with any content: either it is damaged, or all entries that it
// has then can be read, and are the same when it is opened again.
func FuzzSegment(f *testing.F) {
	whole := frames(10, 0, 300, 5000)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(append(frames(10), frames(10, 20)...))
	f.Add(append(append(frames(10), make([]byte, 5000)...), whole[86:]...))
	f.Add(bytes.Replace(whole, []byte{3, 3, 3}, []byte{3, 4, 3}, 1))
	f.Fuzz(func(t *testing.T, content []byte) {
		disk := vfs.NewMem()
		write := func(path string, b []byte) {
			file, err := disk.Create(path, category)
			if err == nil {
				_, err = file.Write(b)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
		}
		s := &Store{fs: disk, log: slog.New(slog.DiscardHandler), files: openFiles{most: 1}}
		g := s.segment("", 1)
		write(g.base+segmentEnding, append(preamble{first: 1, salt: fuzzSalt}.encode(), content...))
		var ends []int64
		for range 2 {
			g := s.segment("", 1)
			if err := g.use(); err != nil {
				return
			}
			for at := uint64(1); at < g.next; {
				entries, err := g.read(at, 1000)
				if err != nil || len(entries) == 0 || entries[0].Sequence != at {
					t.Fatalf("read entry %d of %d: %v, %v", at, g.next-1, entries, err)
				}
				at += uint64(len(entries))
			}
			ends = append(ends, g.end)
			g.unuse()
			g.retire()
		}
		if ends[0] != ends[1] {
			t.Fatalf("the segment ends at %d, and when it is opened again at %d", ends[0], ends[1])
		}
	})
}

// FuzzPoints reads any points file: its points ascend.
func FuzzPoints(f *testing.F) {
	f.Add(appendPoint(appendPoint(nil, fuzzSalt, point{1, 32}), fuzzSalt, point{9, 4000}))
	f.Add([]byte("points"))
	f.Fuzz(func(t *testing.T, b []byte) {
		points := parsePoints(b, fuzzSalt)
		var again []byte
		for i, p := range points {
			if i > 0 && (p.sequence <= points[i-1].sequence || p.position <= points[i-1].position) {
				t.Fatalf("points %v do not ascend", points)
			}
			again = appendPoint(again, fuzzSalt, p)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("points %v are not what the file begins with", points)
		}
	})
}

func TestHeaders(t *testing.T) {
	want := frame{
		sequence: 1<<63 + 5, length: MaxEntryBytes, sum: 7, durable: 1<<30 + 16<<20,
		mark: topic.Mark{Base: 1, Next: 2, Epoch: 3, MaxTimestamp: topic.NoTimestamp, Bytes: 1 << 62, Released: 6},
	}
	b := appendHeader(nil, fuzzSalt, want)
	if got, ok := parseHeader(b, fuzzSalt); !ok || got != want || len(b) != headerBytes {
		t.Errorf("%d bytes are read as %+v, %v", len(b), got, ok)
	}
	if _, ok := parseHeader(b, fuzzSalt+1); ok {
		t.Error("the header of another segment is taken")
	}
	for i := range b {
		b[i] ^= 1
		if _, ok := parseHeader(b, fuzzSalt); ok {
			t.Errorf("a changed byte %d is not noticed", i)
		}
		b[i] ^= 1
	}
}
