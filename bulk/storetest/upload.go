package storetest

import (
	"bytes"
	"errors"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var uploadCases = []testCase{
	{"creating twice creates once", false, createTwice},
	{"an id with another body is refused", false, createOther},
	{"what was asked for is kept", false, createKeepsSpec},
	{"a trace is kept and makes no difference", true, createKeepsTrace},
	{"no such action", false, notFound},
	{"an upload is resumed at any offset", false, appendOffsets},
	{"an upload beyond what was received is refused", false, appendBeyond},
	{"an empty upload changes nothing", false, appendNothing},
	{"nothing is added after the seal", false, appendSealed},
	{"payloads come back as they were", false, appendPayloads},
	{"payloads are copied", false, appendCopies},
	{"jobs are first in, first out", false, appendOrder},
	{"an upload survives a restart", true, appendSurvives},
}

func createTwice(k *kit) {
	k.open(unlimited())
	first := k.create(spec("a", "tenant"))
	k.check(first.Status == bulk.Created && first.ID == "a", "created %+v, want status CREATED and id a", first)
	k.check(first.CreatedAt.Equal(time.Now()), "created at %v, want the store's time, %v", first.CreatedAt, time.Now())
	k.upload("a", 3)
	k.advance(time.Minute)
	again, created, err := k.store.Create(ctx, spec("a", "tenant"))
	k.must(err)
	k.check(!created, "creating it again: created is true")
	k.check(again.Received == 3 && again.CreatedAt.Equal(first.CreatedAt), "creating it again returned %+v, want the stored action", again)
	k.run(spec("b", "tenant"), 1)
	again, created, err = k.store.Create(ctx, spec("b", "tenant"))
	k.must(err)
	k.check(!created && again.Status == bulk.Running, "creating a running action again: created %v, %s", created, again.Status)
}

func createOther(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	other := spec("a", "tenant")
	other.Class = bulk.High
	_, created, err := k.store.Create(ctx, other)
	var exists *bulk.ExistsError
	k.check(errors.As(err, &exists) && exists.ID == "a" && !created, "Create with another class: %v, %v, want an *ExistsError", created, err)
	k.check(k.action("a").Class == bulk.Normal, "the refused body was stored")
}

func createKeepsSpec(k *kit) {
	k.open(unlimited())
	half := 0.5
	want := targeted("a", "tenant ü", "api")
	want.Class, want.Aggregate, want.RunAt = bulk.Low, []string{"count", "sum:amount"}, time.Now().Add(time.Hour)
	want.MaxAttempts, want.Timeout, want.FailAbove, want.ReplayOf = 7, 1500*time.Millisecond, &half, "b"
	k.create(want)
	k.check(k.action("a").Spec.Equal(want), "stored %+v, want %+v", k.action("a").Spec, want)
	want.RunAt = time.Time{}
	want.ID = "c"
	k.run(want, 1)
	k.check(k.takeOne().Spec.Equal(want), "a leased job has another spec than was stored")
	if k.factory.Reopen != nil {
		k.reopen()
		k.check(k.action("c").Spec.Equal(want), "after reopening: %+v, want %+v", k.action("c").Spec, want)
	}
}

// createKeepsTrace checks that leased jobs have the trace of the first creation.
func createKeepsTrace(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		first := bulk.TraceContext{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "vendor=1"}
		s := spec("a", "tenant")
		s.Trace = first
		k.create(s)
		s.Trace = bulk.TraceContext{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
		again, created, err := k.store.Create(ctx, s)
		k.must(err)
		k.check(!created && again.Trace == first, "creating it again in another trace: created %v, trace %+v, want the first", created, again.Trace)
		k.upload("a", 2)
		k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 2})
		k.transition("a", bulk.Transition{Kind: bulk.Start})
		restart()
		k.check(k.action("a").Trace == first, "the trace after a restart is %+v", k.action("a").Trace)
		k.admit("a", 2)
		jobs := k.lease(2)
		k.check(len(jobs) == 2 && jobs[0].Spec.Trace == first && jobs[1].Spec.Trace == first, "leased %+v, want 2 jobs with the trace", jobs)
	})
}

func notFound(k *kit) {
	k.open(unlimited())
	k.create(spec("here", "tenant"))
	_, action := k.store.Action(ctx, "none")
	_, append := k.store.Append(ctx, "none", 0, [][]byte{{'1'}})
	_, transition := k.store.Transition(ctx, "none", bulk.Transition{Kind: bulk.Cancel})
	_, _, outcomes := k.store.Outcomes(ctx, "none", 0)
	_, dead := k.store.DeadLetters(ctx, "none", 0, 10)
	for what, err := range map[string]error{
		"Action": action, "Append": append, "Transition": transition, "Outcomes": outcomes, "DeadLetters": dead,
	} {
		k.check(errors.Is(err, bulk.ErrNotFound), "%s of no such action: %v, want ErrNotFound", what, err)
	}
}

func appendOffsets(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	all := make([][]byte, 10)
	for i := range all {
		all[i] = payload("a", int64(i))
	}
	for _, chunk := range []struct{ from, to, received int64 }{
		{0, 4, 4}, {0, 4, 4}, {2, 6, 6}, {1, 3, 6}, {6, 6, 6}, {6, 7, 7}, {0, 10, 10}, {10, 10, 10}, {9, 10, 10},
	} {
		received, err := k.store.Append(ctx, "a", chunk.from, all[chunk.from:chunk.to])
		k.must(err)
		k.check(received == chunk.received, "Append of jobs %d to %d: received %d, want %d", chunk.from, chunk.to, received, chunk.received)
	}
	k.expect("a", where{Pending: 10})
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 10})
	k.transition("a", bulk.Transition{Kind: bulk.Start})
	k.expectIndexes(k.take(10), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
}

func appendBeyond(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	k.upload("a", 3)
	for _, payloads := range [][][]byte{{payload("a", 4)}, nil} {
		_, err := k.store.Append(ctx, "a", 4, payloads)
		var offset *bulk.OffsetError
		k.check(errors.As(err, &offset) && offset.Received == 3, "Append at 4 of 3: %v, want an *OffsetError with 3 received", err)
	}
	k.expect("a", where{Pending: 3})
}

func appendNothing(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	for range 2 {
		for _, empty := range [][][]byte{nil, {}} {
			before := k.action("a").Received
			received, err := k.store.Append(ctx, "a", before, empty)
			k.must(err)
			k.check(received == before && k.action("a").Received == before, "an empty upload made %d jobs of %d", received, before)
		}
		k.upload("a", 2)
	}
}

func appendSealed(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 2)
	_, err := k.store.Append(ctx, "a", 2, [][]byte{payload("a", 2)})
	k.expectRefusal(err, "Append to a running action")
	k.create(spec("b", "tenant"))
	k.transition("b", bulk.Transition{Kind: bulk.Seal})
	_, err = k.store.Append(ctx, "b", 0, [][]byte{payload("b", 0)})
	k.expectRefusal(err, "Append to a sealed action")
	k.create(spec("c", "tenant"))
	k.upload("c", 1)
	k.transition("c", bulk.Transition{Kind: bulk.Cancel})
	_, err = k.store.Append(ctx, "c", 1, [][]byte{payload("c", 1)})
	k.expectRefusal(err, "Append to a canceled action")
	k.expect("c", where{Canceled: 1})
}

// appendPayloads uses sizes and bytes that are difficult for formats.
func appendPayloads(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	var every []byte
	for b := range 256 {
		every = append(every, byte(b))
	}
	payloads := [][]byte{
		[]byte(`1`), every, bytes.Repeat([]byte("x"), 1<<20), []byte("a\nb\x00c"), bytes.Repeat(every, 500), []byte(`{"ü":"日本"}`),
		bytes.Repeat([]byte{0}, 127), bytes.Repeat([]byte{0xff}, 128), bytes.Repeat([]byte{'y'}, 1<<16), []byte(`{}`),
	}
	for at := 0; at < len(payloads); at += 4 {
		_, err := k.store.Append(ctx, "a", int64(at), payloads[at:min(at+4, len(payloads))])
		k.must(err)
	}
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: int64(len(payloads))})
	k.transition("a", bulk.Transition{Kind: bulk.Start})
	k.admitAll()
	jobs, err := k.store.Lease(ctx, request(len(payloads)))
	k.must(err)
	k.check(len(jobs) == len(payloads), "leased %d of %d jobs", len(jobs), len(payloads))
	for i, j := range jobs {
		k.check(j.Index == int64(i), "job %d came in place %d", j.Index, i)
		k.check(bytes.Equal(j.Payload, payloads[i]), "payload %d of %d bytes came back with %d bytes, or others", i, len(payloads[i]), len(j.Payload))
	}
}

func appendCopies(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	buffer := payload("a", 0)
	_, err := k.store.Append(ctx, "a", 0, [][]byte{buffer})
	k.must(err)
	clear(buffer)
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 1})
	k.transition("a", bulk.Transition{Kind: bulk.Start})
	k.takeOne()
}

// appendOrder uploads several actions of one tenant in uneven chunks, and reads them in
// uneven steps.
func appendOrder(k *kit) {
	k.open(unlimited())
	ids := []string{"a", "b", "a-1"}
	for _, id := range ids {
		k.create(spec(id, "tenant"))
	}
	for chunk := range 40 {
		for i, id := range ids {
			k.upload(id, (chunk*7+i*3)%23)
		}
	}
	next := map[string]int64{}
	for _, id := range ids {
		k.advance(time.Millisecond)
		k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: k.action(id).Received})
		k.transition(id, bulk.Transition{Kind: bulk.Start})
	}
	for step := 1; k.admitAll() > 0 || step < 3; step++ {
		for jobs := k.lease(step * 13); len(jobs) > 0; jobs = k.lease(step * 13) {
			for _, j := range jobs {
				k.check(j.Index == next[j.Spec.ID], "leased %s, want index %d next", j.ID(), next[j.Spec.ID])
				k.check(j.ID() == bulk.JobID(j.Spec.ID, j.Index), "job id %s", j.ID())
				k.check(j.Attempt == 1, "%s: attempt %d, want 1", j.ID(), j.Attempt)
				next[j.Spec.ID]++
			}
		}
	}
	for _, id := range ids {
		a := k.action(id)
		k.check(next[id] == a.Received && a.InFlight == a.Received, "%s: %d of %d jobs came back", id, next[id], a.Received)
	}
}

func appendSurvives(k *kit) {
	for way, restart := range k.restarts() {
		k.open(unlimited())
		id := way
		k.create(spec(id, "tenant"))
		for range 5 {
			k.upload(id, 100)
			restart()
		}
		k.expect(id, where{Pending: 500})
		k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: 500})
		restart()
		k.transition(id, bulk.Transition{Kind: bulk.Start})
		restart()
		for want := int64(0); want < 500; want += 50 {
			k.admit(id, 50)
			for i, j := range k.lease(50) {
				k.check(j.Index == want+int64(i), "after %s: leased index %d, want %d", way, j.Index, want+int64(i))
			}
		}
		k.expect(id, where{InFlight: 500})
	}
}
