package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
)

// TestPayloadsOfAnEarlierVersionCount: it has stored no sizes, so opening adds up the pages.
func TestPayloadsOfAnEarlierVersionCount(t *testing.T) {
	options := Options{FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}
	reopen := func(s *Store) *Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open("store", options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s, err := Open("store", options)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "call"}); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, jobs := range []int{1, 3000, 2} {
		payloads := make([][]byte, jobs)
		for i := range payloads {
			payloads[i] = fmt.Appendf(nil, `{"n":%d}`, i)
			if i%1000 == 1 {
				payloads[i] = append(bytes.Repeat([]byte{' '}, 2*payloadPageBytes), payloads[i]...) // a page of its own
			}
			size += int64(len(payloads[i]))
		}
		if _, err := s.Append(t.Context(), "a", bulk.AtEnd, payloads); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Set(numberKey(keyLive, s.find("a").number), nil, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	s = reopen(s)
	for range 2 { // the second time, the size was stored with the last upload
		if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{MaxBytes: size + 1}}); err != nil {
			t.Fatal(err)
		}
		_, tooMuch := s.Append(t.Context(), "a", bulk.AtEnd, [][]byte{[]byte("12")})
		_, fits := s.Append(t.Context(), "a", bulk.AtEnd, [][]byte{[]byte("1")})
		if !errors.As(tooMuch, new(*bulk.QuotaError)) || fits != nil {
			t.Errorf("with %d bytes stored and one more allowed: two more %v, one more %v", size, tooMuch, fits)
		}
		size++
		s = reopen(s)
	}
}
