package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

func TestSplitPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 3*payloadPageBytes)), 0, 60).Draw(t, "sizes")
		var payloads [][]byte
		for _, size := range sizes {
			payloads = append(payloads, make([]byte, size))
		}
		for range rapid.SampledFrom([]int{0, payloadPageJobs - 3, 3 * payloadPageJobs}).Draw(t, "empty ones") {
			payloads = append(payloads, nil)
		}
		var got []int
		splitPages(payloads, func(page [][]byte, size int) {
			sum := 0
			for _, p := range page {
				sum += len(p)
				got = append(got, len(p))
			}
			switch {
			case sum != size:
				t.Fatalf("a page of %d bytes is said to have %d", sum, size)
			case len(page) == 0 || len(page) > payloadPageJobs:
				t.Fatalf("a page of %d jobs", len(page))
			case len(page) > 1 && size > payloadPageBytes:
				t.Fatalf("a page of %d jobs has %d bytes", len(page), size)
			}
		})
		want := make([]int, len(payloads))
		for i, p := range payloads {
			want[i] = len(p)
		}
		if !slices.Equal(got, want) {
			t.Fatal("pages together are not the payloads")
		}
	})
}

func TestPageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 50).Draw(t, "payloads")
		first := rapid.Uint32Range(0, MaxJobs-50).Draw(t, "first")
		value := encodePage(payloads, 0)
		if n := pageJobs(value); n != int64(len(payloads)) {
			t.Fatalf("the page is said to have %d jobs", n)
		}
		p, ok := decodePage(1, first, value)
		if !ok {
			t.Fatal("the page is refused")
		}
		clear(value) // Pebble's memory is only valid for a moment
		for i, want := range payloads {
			index := first + uint32(i)
			if got := p.payload(index); !p.has(index) || !bytes.Equal(got, want) || cap(got) != len(got) {
				t.Fatalf("job %d has %q, want %q", index, got, want)
			}
		}
		if p.has(first-1) || p.has(first+uint32(len(payloads))) {
			t.Fatal("the page claims its neighbours")
		}
	})
}

func FuzzDecodePage(f *testing.F) {
	f.Add(encodePage([][]byte{[]byte("a"), nil, []byte("ccc")}, 4))
	f.Add([]byte{})
	f.Add([]byte{0})
	f.Add(binary.AppendUvarint(nil, 1<<62))
	// Lengths whose sum is right only if it overflows 64 bits.
	f.Add(append(append([]byte{2}, binary.AppendUvarint(nil, 1<<64-5)...), 10, 1, 2, 3, 4, 5))
	f.Fuzz(func(t *testing.T, value []byte) {
		p, ok := decodePage(1, 5, value)
		if !ok {
			return
		}
		jobs := uint32(len(p.offsets) - 1)
		if int64(jobs) != pageJobs(value) || len(p.data) > len(value) || int(jobs) > len(value) {
			t.Fatalf("%d jobs with %d bytes in a page of %d bytes", jobs, len(p.data), len(value))
		}
		size := 0
		for i := range jobs {
			size += len(p.payload(5 + i))
		}
		if size != len(p.data) {
			t.Fatalf("payloads have %d bytes of %d", size, len(p.data))
		}
	})
}

func openMemory(t *testing.T) *Store {
	t.Helper()
	s, err := Open("store", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func appendJobs(t *testing.T, s *Store, id string, payloads [][]byte) uint64 {
	t.Helper()
	ctx := context.Background()
	if _, _, err := s.Create(ctx, bulk.Spec{ID: id, Tenant: "t", Type: "echo"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, id, 0, payloads); err != nil {
		t.Fatal(err)
	}
	return s.find(id).number
}

func TestCachedPagesAreBounded(t *testing.T) {
	s := openMemory(t)
	large, tiny := make([]byte, payloadPageBytes-10), make([][]byte, payloadPageJobs)
	var numbers []uint64
	for i := range 2 * cachedPageBytes / payloadPageBytes {
		numbers = append(numbers, appendJobs(t, s, fmt.Sprint("large-", i), [][]byte{large}))
	}
	for i := range 20 {
		numbers = append(numbers, appendJobs(t, s, fmt.Sprint("tiny-", i), tiny))
	}
	for _, number := range numbers {
		if _, err := s.pages.payload(number, 0); err != nil {
			t.Fatal(err)
		}
		held := 0
		for e := s.pages.recent.Front(); e != nil; e = e.Next() {
			p := e.Value.(*page)
			held += len(p.data) + 4*len(p.offsets)
		}
		if held > cachedPageBytes || s.pages.bytes < held || s.pages.bytes > cachedPageBytes {
			t.Fatalf("%d bytes are held, %d are counted, the bound is %d", held, s.pages.bytes, cachedPageBytes)
		}
	}
	for _, number := range numbers {
		s.pages.forget(number)
	}
	if s.pages.bytes != 0 || s.pages.recent.Len() != 0 || len(s.pages.of) != 0 {
		t.Errorf("when all is forgotten %d bytes in %d pages are left", s.pages.bytes, s.pages.recent.Len())
	}
}

func TestAnActionKeepsTwoPages(t *testing.T) {
	s := openMemory(t)
	var payloads [][]byte
	for i := range 5 * payloadPageJobs {
		payloads = append(payloads, fmt.Append(nil, i))
	}
	number := appendJobs(t, s, "a", payloads)
	// In order, with repeated jobs of the first page in between.
	for i := uint32(0); i < uint32(len(payloads)); i += 100 {
		for _, index := range []uint32{i, i / 200} {
			got, err := s.pages.payload(number, index)
			if err != nil || string(got) != fmt.Sprint(index) {
				t.Fatalf("job %d has %q, error %v", index, got, err)
			}
		}
		if n := s.pages.recent.Len(); n > 2 || n != len(s.pages.of[number]) {
			t.Fatalf("%d pages are kept", n)
		}
	}
	if _, err := s.pages.payload(number, uint32(len(payloads))); !errors.Is(err, errNoPayload) {
		t.Errorf("a job beyond the last: %v", err)
	}
	if _, err := s.pages.payload(number+1, 0); !errors.Is(err, errNoPayload) {
		t.Errorf("a job of no action: %v", err)
	}
}
