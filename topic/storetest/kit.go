package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// patience is the timeout of waits in cases. It is long, so that a slow machine does not fail
// a test; shorter for stores that are known to fail.
var patience = 5 * time.Minute

// kit has a store, and helpers for calls that must succeed.
type kit struct {
	t       testing.TB
	factory Factory
	ctx     context.Context
	store   topic.Store
}

func newKit(t testing.TB, factory Factory) *kit {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	k := &kit{t: t, factory: factory, ctx: ctx, store: factory.Open(t)}
	t.Cleanup(func() {
		cancel()
		if err := k.store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

func (k *kit) restart(way string) {
	k.t.Helper()
	k.store = newWays(k.factory)[way](k.t, k.store)
}

func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// is checks that an error is one of those allowed.
func (k *kit) is(err error, allowed ...error) {
	k.t.Helper()
	for _, want := range allowed {
		if errors.Is(err, want) {
			return
		}
	}
	k.t.Fatalf("error is %v, want one of %v", err, allowed)
}

// onOne is where the suite makes logs: on the node of a store of one.
var onOne = []int32{1}

func (k *kit) log(name string) topic.Log {
	k.t.Helper()
	l, err := k.store.OpenLog(k.ctx, name, onOne)
	k.must(err)
	return l
}

// pattern is the source of data.
var pattern = func() []byte {
	random := rand.NewChaCha8([32]byte{})
	bytes := make([]byte, 70_001)
	_, _ = random.Read(bytes)
	return bytes
}()

// entry returns an entry whose content is a function of its sequence and size. Every other one has its sum.
func entry(sequence uint64, size int) topic.Entry {
	n := int64(sequence)
	data := make([]byte, size)
	for filled := 0; filled < size; {
		filled += copy(data[filled:], pattern[sequence*31%1000:])
	}
	e := topic.Entry{
		Sequence: sequence,
		Mark: topic.Mark{
			Base: 10 * n, Next: 10*n + 9, Epoch: int32(n / 4), MaxTimestamp: n - 2,
			Bytes: n << 20, Released: n / 3,
		},
		Data: data,
	}
	if sequence%2 == 0 {
		e.Sum = crc32.Checksum(data, topic.Castagnoli)
	}
	return e
}

// entries returns the entries from first to last.
func entries(first, last uint64, size int) []topic.Entry {
	var all []topic.Entry
	for sequence := first; sequence <= last; sequence++ {
		all = append(all, entry(sequence, size))
	}
	return all
}

// largestMark has the largest value in each field.
var largestMark = topic.Mark{
	Base: math.MaxInt64 - 1, Next: math.MaxInt64, Epoch: math.MaxInt32,
	MaxTimestamp: math.MaxInt64, Bytes: math.MaxInt64, Released: math.MaxInt64,
}

// append sends entries without waiting between them, and returns their outcomes. It checks
// that dones are called in order.
func (k *kit) append(l topic.Log, all ...topic.Entry) []error {
	k.t.Helper()
	type outcome struct {
		i   int
		err error
	}
	outcomes := make(chan outcome, 2*len(all))
	for i, e := range all {
		l.Append(e, func(err error) { outcomes <- outcome{i, err} })
	}
	errs := make([]error, len(all))
	for i := range all {
		select {
		case o := <-outcomes:
			if o.i != i {
				k.t.Fatalf("done %d came as number %d", o.i, i)
			}
			errs[i] = o.err
		case <-time.After(patience):
			k.t.Fatalf("done %d of %d did not come", i, len(all))
		}
	}
	return errs
}

// mustAppend appends entries that must succeed.
func (k *kit) mustAppend(l topic.Log, all ...topic.Entry) {
	k.t.Helper()
	for i, err := range k.append(l, all...) {
		if err != nil {
			k.t.Fatalf("append %d: %v", all[i].Sequence, err)
		}
	}
}

// ends checks the ends of a log.
func (k *kit) ends(l topic.Log, first, last uint64) {
	k.t.Helper()
	gotFirst, gotLast, err := l.Ends(k.ctx)
	k.must(err)
	if gotFirst != first || gotLast != last {
		k.t.Fatalf("ends are %d and %d, want %d and %d", gotFirst, gotLast, first, last)
	}
}

// holds checks that a log has exactly these entries.
func (k *kit) holds(l topic.Log, want ...topic.Entry) {
	k.t.Helper()
	got := k.readAll(l, 0, 1<<20)
	if err := same(got, want); err != nil {
		k.t.Fatal(err)
	}
}

// readAll reads a log to its end.
func (k *kit) readAll(l topic.Log, from uint64, maxBytes int) []topic.Entry {
	k.t.Helper()
	var all []topic.Entry
	for {
		some, err := l.Read(k.ctx, from, maxBytes)
		k.must(err)
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
		from = some[len(some)-1].Sequence + 1
	}
}

// same returns how entries differ from the expected ones, or nil.
func same(got, want []topic.Entry) error {
	for i := range min(len(got), len(want)) {
		if got[i].Sequence != want[i].Sequence || got[i].Mark != want[i].Mark {
			return fmt.Errorf("entry %d of %d is %d %+v, want %d %+v",
				i, len(got), got[i].Sequence, got[i].Mark, want[i].Sequence, want[i].Mark)
		}
		if !bytes.Equal(got[i].Data, want[i].Data) {
			return fmt.Errorf("entry %d has other data: %d bytes, want %d", got[i].Sequence, len(got[i].Data), len(want[i].Data))
		}
		if sum := got[i].Sum; sum != 0 && sum != crc32.Checksum(got[i].Data, topic.Castagnoli) {
			return fmt.Errorf("entry %d has the sum %08x, which is not that of its data", got[i].Sequence, sum)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(got), len(want))
	}
	return nil
}

// checkRead returns what is wrong with the result of a read of a log that has the entries
// all, or nil.
func checkRead(got, all []topic.Entry, from uint64, maxBytes int) error {
	for len(all) > 0 && all[0].Sequence < from {
		all = all[1:]
	}
	if len(got) > len(all) {
		return fmt.Errorf("read from %d: %d entries, there are %d", from, len(got), len(all))
	}
	if len(got) == 0 && len(all) > 0 {
		return fmt.Errorf("read from %d: nothing, there are %d entries", from, len(all))
	}
	size := 0
	for i, e := range got {
		// The last entry may exceed the bound.
		if i > 0 && size > maxBytes {
			return fmt.Errorf("read from %d: entry %d after %d bytes, at most %d were asked for", from, e.Sequence, size, maxBytes)
		}
		size += len(e.Data)
	}
	return same(got, all[:len(got)])
}
