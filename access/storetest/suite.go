package storetest

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/access"
)

// Harness opens stores for the suite.
type Harness struct {
	// Open returns the store of a new place, without a document.
	Open func(t testing.TB) access.Store
	// Again returns a store of the same place as another, as a second instance or a restarted one has it.
	Again func(t testing.TB, store access.Store) access.Store
}

// Run checks that a store does what access.Store promises.
func Run(t *testing.T, h Harness) {
	t.Run("a new place has no document", func(t *testing.T) {
		want(t, h.Open(t), "", "")
	})
	t.Run("a document is read as it was written, elsewhere too", func(t *testing.T) {
		store := h.Open(t)
		largest := bytes.Repeat([]byte{'{', 0, 0xff, '\n'}, access.MaxDocument/4)
		version := ""
		for _, document := range [][]byte{[]byte("{}"), []byte("{} "), largest} {
			written := write(t, store, document, version)
			if written == version || written == "" {
				t.Fatalf("the version of another document is %q, as before", written)
			}
			version = written
			want(t, store, string(document), version)
			want(t, h.Again(t, store), string(document), version)
		}
	})
	t.Run("only the document that was read is replaced", func(t *testing.T) {
		store := h.Open(t)
		other := h.Again(t, store)
		first := write(t, store, []byte("first"), "")
		refused(t, other, "")
		second := write(t, other, []byte("second"), first)
		refused(t, store, first)
		refused(t, store, "")
		refused(t, store, "no version at all")
		want(t, store, "second", second)
	})
	t.Run("of writes at one time none is lost", func(t *testing.T) { count(t, h) })
}

// count lets several instances count in the document.
func count(t *testing.T, h Harness) {
	const instances, each = 4, 5
	store := h.Open(t)
	var all sync.WaitGroup
	for i := range instances {
		own := store
		if i > 0 {
			own = h.Again(t, store)
		}
		all.Go(func() {
			for done := 0; done < each; {
				document, version, err := own.Read(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(document)) // 0 without a document
				_, err = own.Write(t.Context(), strconv.AppendInt(nil, int64(n+1), 10), version)
				switch {
				case err == nil:
					done++
				case !errors.Is(err, access.ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if document, _, err := store.Read(t.Context()); err != nil || string(document) != strconv.Itoa(instances*each) {
		t.Errorf("%d instances counted to %s each %d times: %v", instances, document, each, err)
	}
}

func write(t testing.TB, store access.Store, document []byte, version string) string {
	t.Helper()
	written, err := store.Write(t.Context(), document, version)
	if err != nil {
		t.Fatalf("write over %q: %v", version, err)
	}
	return written
}

func refused(t testing.TB, store access.Store, version string) {
	t.Helper()
	if _, err := store.Write(t.Context(), []byte("refused"), version); !errors.Is(err, access.ErrChanged) {
		t.Errorf("write over %q: %v, want ErrChanged", version, err)
	}
}

func want(t testing.TB, store access.Store, document, version string) {
	t.Helper()
	got, is, err := store.Read(t.Context())
	if err != nil || string(got) != document || is != version || (got == nil) != (version == "") {
		t.Errorf("read %.50q of version %q, %v; want %.50q of version %q", got, is, err, document, version)
	}
}
