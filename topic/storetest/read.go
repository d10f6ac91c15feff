package storetest

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/topic"
)

var readCases = []testCase{
	{"a read begins at its sequence and respects its size", func(k *kit) {
		l := k.log("sizes")
		var all []topic.Entry
		for sequence := uint64(1); sequence <= 40; sequence++ {
			all = append(all, entry(sequence, int(sequence*sequence)%700))
		}
		k.mustAppend(l, all...)
		for from := range uint64(44) {
			for _, maxBytes := range []int{0, 1, 300, 1000, 5000, 1 << 30} {
				got, err := l.Read(k.ctx, from, maxBytes)
				k.must(err)
				k.must(checkRead(got, all, from, maxBytes))
			}
		}
	}},
	{"a read returns an entry however large it is", func(k *kit) {
		l := k.log("one")
		k.mustAppend(l, entry(1, 3<<20), entry(2, 10))
		got, err := l.Read(k.ctx, 1, 1)
		k.must(err)
		k.must(same(got, []topic.Entry{entry(1, 3<<20)}))
	}},
	{"a read brings more than one entry", func(k *kit) {
		l := k.log("many")
		all := entries(1, 200, 100)
		k.mustAppend(l, all...)
		got, err := l.Read(k.ctx, 1, 1<<20)
		k.must(err)
		if len(got) < 2 {
			k.t.Fatalf("%d entries of 100 bytes, 1 MiB was asked for", len(got))
		}
		k.must(checkRead(got, all, 1, 1<<20))
	}},
	{"what was read stays what it was", func(k *kit) {
		l := k.log("kept")
		all := entries(1, 20, 2000)
		k.mustAppend(l, all...)
		kept := k.readAll(l, 1, 5000)
		k.mustAppend(l, entries(21, 60, 2000)...)
		k.readAll(l, 1, 5000)
		k.must(l.Trim(k.ctx, 50))
		k.must(same(kept, all))
	}},
	{"a read beyond the end returns nothing, at once", func(k *kit) {
		l := k.log("beyond")
		k.mustAppend(l, entries(1, 3, 10)...)
		for _, from := range []uint64{4, 5, 1 << 62} {
			got, err := l.Read(k.ctx, from, 1<<20)
			k.must(err)
			k.must(same(got, nil))
		}
	}},
	{"an append is read once it is reported", func(k *kit) {
		l := k.log("fresh")
		for sequence := uint64(1); sequence <= 100; sequence++ {
			k.mustAppend(l, entry(sequence, 10))
			got, err := l.Read(k.ctx, sequence, 1)
			k.must(err)
			k.must(same(got, entries(sequence, sequence, 10)))
			k.ends(l, 1, sequence)
		}
	}},
}

var trimCases = []testCase{
	{"trim removes what is before", func(k *kit) {
		l := k.log("trim")
		k.mustAppend(l, entries(1, 10, 10)...)
		for _, before := range []uint64{0, 1, 2, 5, 5, 3, 10} {
			k.must(l.Trim(k.ctx, before))
		}
		k.ends(l, 10, 10)
		k.holds(l, entry(10, 10))
		k.mustAppend(l, entry(11, 10))
		k.holds(l, entries(10, 11, 10)...)
	}},
	{"the last sequence stays when all is trimmed", func(k *kit) {
		for name, before := range map[string]uint64{"exact": 6, "beyond": 7, "far": 1 << 40} {
			l := k.log(name)
			k.mustAppend(l, entries(1, 5, 10)...)
			k.must(l.Trim(k.ctx, before))
			k.ends(l, 6, 5)
			k.holds(l)
			k.must(l.Trim(k.ctx, before))
			k.ends(l, 6, 5)
			k.mustAppend(l, entry(6, 10))
			k.ends(l, 6, 6)
			k.holds(l, entry(6, 10))
		}
	}},
	{"an empty log can be trimmed", func(k *kit) {
		l := k.log("empty")
		for _, before := range []uint64{0, 1, 2, 100} {
			k.must(l.Trim(k.ctx, before))
		}
		k.ends(l, 1, 0)
		k.mustAppend(l, entry(1, 10))
		k.holds(l, entry(1, 10))
	}},
}

var waitCases = []testCase{
	{"what is there is not waited for", func(k *kit) {
		l := k.log("there")
		k.must(l.Wait(k.ctx, 0))
		k.mustAppend(l, entries(1, 3, 10)...)
		k.must(l.Wait(k.ctx, 1))
		k.must(l.Wait(k.ctx, 3))
		k.must(l.Trim(k.ctx, 4))
		k.must(l.Wait(k.ctx, 3))
	}},
	{"wait returns when the sequence is there", func(k *kit) {
		l, same := k.log("comes"), k.log("comes")
		waited := make(chan error, 2)
		for _, waiting := range []topic.Log{l, same} {
			go func() { waited <- waiting.Wait(k.ctx, 3) }()
		}
		k.mustAppend(l, entries(1, 2, 10)...)
		select {
		case err := <-waited:
			k.t.Fatalf("wait for 3 returned %v when 2 was the last", err)
		case <-time.After(20 * time.Millisecond):
		}
		k.mustAppend(l, entry(3, 10))
		for range 2 {
			select {
			case err := <-waited:
				k.must(err)
			case <-time.After(patience):
				k.t.Fatal("wait does not return")
			}
		}
	}},
	{"wait ends with its context", func(k *kit) {
		l := k.log("never")
		ctx, cancel := context.WithTimeout(k.ctx, 20*time.Millisecond)
		defer cancel()
		k.is(l.Wait(ctx, 1), context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(k.ctx)
		cancel()
		k.is(l.Wait(ctx, 1), context.Canceled)
	}},
	{"wait ends when the log is deleted", func(k *kit) {
		l := k.log("deleted")
		waited := make(chan error, 1)
		go func() { waited <- l.Wait(k.ctx, 1) }()
		k.must(k.store.DeleteLog(k.ctx, "deleted"))
		select {
		case err := <-waited:
			k.is(err, topic.ErrNoLog)
		case <-time.After(patience):
			k.t.Fatal("wait does not return")
		}
	}},
}
