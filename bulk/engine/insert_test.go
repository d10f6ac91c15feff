package engine_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

// page is an in-memory Inserter with one action, like a store. It fails on demand, before or
// after a call has its effect.
type page struct {
	action   bulk.Action
	payloads []string
	calls    int
	// fails returns whether a call fails: before, without effect, or after.
	fails func(call int) (before, after bool)
	// jobs and bytes are those of the largest chunk.
	jobs, bytes int
}

var errAway = errors.New("the store is away")

func (p *page) call(effect func() error) error {
	before, after := false, false
	if p.fails != nil {
		before, after = p.fails(p.calls)
	}
	p.calls++
	if before {
		return errAway
	}
	if err := effect(); err != nil || !after {
		return err
	}
	return errAway
}

func (p *page) Create(_ context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	created := p.action.Status == ""
	err := p.call(func() error {
		if p.action.Status == "" {
			p.action.Spec, p.action.Status = spec, bulk.Created
		}
		if !p.action.Spec.Equal(spec) {
			return &bulk.ExistsError{ID: spec.ID}
		}
		return nil
	})
	return p.action, created, err
}

func (p *page) Append(_ context.Context, _ string, offset int64, payloads [][]byte) (int64, error) {
	err := p.call(func() error {
		have := int64(len(p.payloads))
		if offset > have {
			return &bulk.OffsetError{Received: have}
		}
		size := 0
		for i, payload := range payloads {
			size += len(payload)
			if offset+int64(i) >= have {
				p.payloads = append(p.payloads, string(payload))
			}
		}
		p.jobs, p.bytes = max(p.jobs, len(payloads)), max(p.bytes, size)
		p.action.Received = int64(len(p.payloads))
		return nil
	})
	return p.action.Received, err
}

func (p *page) Seal(_ context.Context, _ string, total int64) (bulk.Action, error) {
	err := p.call(func() error {
		if total != p.action.Received {
			return &bulk.TransitionError{ID: p.action.ID, From: p.action.Status}
		}
		p.action.Status, p.action.Total = bulk.Dispatched, total
		return nil
	})
	return p.action, err
}

func squares(n int) iter.Seq[square] {
	return func(yield func(square) bool) {
		for i := range n {
			if !yield(square{int64(i)}) {
				return
			}
		}
	}
}

func TestInsert(t *testing.T) {
	mux := bulk.NewMux()
	bulk.AddWorker(mux, &squarer{})
	inVirtualTime(t, bulk.Config{Workers: 1}, mux, func(t *testing.T, r *rig) {
		spec := bulk.Spec{ID: "a", Tenant: "shop", Aggregate: []string{"sum:n"}}
		a, err := bulk.InsertMany(t.Context(), r, spec, squares(2500))
		if err != nil || a.Status != bulk.Dispatched || a.Total != 2500 || a.Type != "math:square" {
			t.Fatalf("%v, %+v", err, a)
		}
		bulktest.RequireJobs(t, r.Engine, "shop", slices.Collect(squares(2500))...)
		a = r.finish(a.ID)
		bulktest.RequireCounts(t, a, bulk.Completed, 2500, 0)
		if string(a.Result["sum:n"]) != `"5205208750"` { // of i² for i < 2500
			t.Errorf("the sum is %s", a.Result["sum:n"])
		}
		again, err := bulk.InsertMany(t.Context(), r, spec, squares(2500))
		if err != nil || again.Status != bulk.Completed || again.Succeeded != 2500 {
			t.Errorf("again: %v, %+v", err, again)
		}
		if a, err = bulk.Insert(t.Context(), r, bulk.Spec{Tenant: "shop"}, square{1}, square{2}); err != nil || a.Total != 2 || a.ID == "" {
			t.Errorf("a few: %v, %+v", err, a)
		}
		if a, err = bulk.Insert[square](t.Context(), r, bulk.Spec{Tenant: "shop"}); err != nil || a.Total != 0 {
			t.Errorf("none: %v, %+v", err, a)
		}
		r.finish(a.ID)
	})
}

func TestInsertRefuses(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		ctx := t.Context()
		var wrong *bulk.SpecError
		if _, err := bulk.Insert(ctx, r, bulk.Spec{Tenant: "t", Type: "echo"}, square{1}); !errors.As(err, &wrong) || wrong.Field != "type" {
			t.Errorf("another type: %v", err)
		}
		if _, err := bulk.Insert(ctx, r, bulk.Spec{}, square{1}); !errors.As(err, &wrong) || wrong.Field != "tenant" {
			t.Errorf("no tenant: %v", err)
		}
		if _, err := bulk.Insert(ctx, r, bulk.Spec{ID: "x", Tenant: "t", Class: bulk.High}, square{1}, square{2}); err != nil {
			t.Fatal(err)
		}
		var exists *bulk.ExistsError
		if _, err := bulk.Insert(ctx, r, bulk.Spec{ID: "x", Tenant: "t"}, square{1}); !errors.As(err, &exists) {
			t.Errorf("another body: %v", err)
		}
		if _, err := r.Cancel(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		var refused *bulk.TransitionError
		if _, err := bulk.Insert(ctx, r, bulk.Spec{ID: "x", Tenant: "t", Class: bulk.High}, square{1}, square{2}); !errors.As(err, &refused) || refused.From != bulk.Canceled {
			t.Errorf("canceled: %v", err)
		}
		if _, err := bulk.Insert(ctx, r, bulk.Spec{ID: "y", Tenant: "t"}, blob{strings.Repeat("x", bulk.MaxPayloadBytes)}); err == nil || !strings.Contains(err.Error(), `job 0 of action "y": 1048587 bytes`) {
			t.Errorf("a large payload: %v", err)
		}
		if _, err := bulk.Insert(ctx, r, bulk.Spec{ID: "z", Tenant: "t"}, blob{"a"}, blob{make(chan int)}); err == nil || !strings.Contains(err.Error(), `job 1 of action "z": json: unsupported type`) {
			t.Errorf("what is no JSON: %v", err)
		}
	})
}

// blob encodes as its contents.
type blob struct {
	Text any `json:"text"`
}

func (blob) JobType() string { return "blob" }

// TestInsertOfASourceThatFails checks that the action of a source that fails is not sealed.
func TestInsertOfASourceThatFails(t *testing.T) {
	errRow := errors.New("row 1500 is broken")
	p := &page{}
	rows := func(fail bool) iter.Seq2[square, error] {
		return func(yield func(square, error) bool) {
			for job := range squares(2000) {
				if fail && job.N == 1500 {
					yield(square{}, errRow)
					return
				}
				if !yield(job, nil) {
					return
				}
			}
		}
	}
	spec := bulk.Spec{ID: "a", Tenant: "t"}
	a, err := bulk.InsertFrom(t.Context(), p, spec, rows(true))
	if !errors.Is(err, errRow) || !strings.Contains(err.Error(), "after 1500 jobs") || a.ID != "a" || p.action.Status != bulk.Created {
		t.Errorf("%v, %+v", err, p.action)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errRow)
	if _, err = bulk.InsertMany(ctx, p, spec, squares(1500)); !errors.Is(err, errRow) || p.action.Status != bulk.Created {
		t.Errorf("a context that has ended: %v, %+v", err, p.action)
	}
	if _, err = bulk.InsertMany(t.Context(), p, spec, squares(10)); err == nil || !strings.Contains(err.Error(), "has 1000 jobs already, but these are only 10") {
		t.Errorf("fewer: %v", err)
	}
	if _, err = bulk.InsertFrom(t.Context(), p, spec, rows(false)); err != nil || p.action.Total != 2000 || len(p.payloads) != 2000 {
		t.Errorf("whole: %v, %+v", err, p.action)
	}
}

// TestInsertInChunks checks that chunks are as large as allowed.
func TestInsertInChunks(t *testing.T) {
	p := &page{}
	if _, err := bulk.InsertMany(t.Context(), p, bulk.Spec{ID: "a", Tenant: "t"}, squares(2500)); err != nil || p.calls != 1+3+1 {
		t.Errorf("2,500 small jobs: %d calls, error %v; want to create, three chunks, and to seal", p.calls, err)
	}
	p = &page{}
	large := make([]blob, 8)
	for i := range large {
		large[i] = blob{strings.Repeat("x", 400_000)}
	}
	if _, err := bulk.Insert(t.Context(), p, bulk.Spec{ID: "a", Tenant: "t"}, large...); err != nil || p.calls != 1+3+1 || p.jobs != 3 {
		t.Errorf("8 large jobs: %d calls, at most %d jobs in one, error %v", p.calls, p.jobs, err)
	}
}

// TestInsertGoesOnWhereItStopped checks that each job is there once and in order, however
// often an insertion fails, before or after its effect, and is repeated; and that memory
// stays within its bound.
func TestInsertGoesOnWhereItStopped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 1000, 300_000, 700_000}), 0, 5).Draw(t, "sizes")
		fillers := rapid.SampledFrom([]int{0, 1, 999, 1000, 1001, 2500}).Draw(t, "small jobs")
		p := &page{fails: func(int) (bool, bool) {
			return rapid.IntRange(0, 3).Draw(t, "before") == 0, rapid.IntRange(0, 3).Draw(t, "after") == 0
		}}
		source := func(yield func(blob) bool) {
			for i := range fillers {
				if !yield(blob{i}) {
					return
				}
			}
			for _, size := range sizes {
				if !yield(blob{strings.Repeat("x", size)}) {
					return
				}
			}
		}
		for attempt := 0; ; attempt++ {
			if attempt == 50 {
				p.fails = nil
			}
			a, err := bulk.InsertMany(context.Background(), p, bulk.Spec{ID: "a", Tenant: "t"}, source)
			if err == nil {
				if a.Total != int64(fillers+len(sizes)) || a.Status != bulk.Dispatched {
					t.Fatalf("inserted: %+v", a)
				}
				break
			}
			if !errors.Is(err, errAway) {
				t.Fatal(err)
			}
		}
		if len(p.payloads) != fillers+len(sizes) {
			t.Fatalf("%d jobs, want %d and %d", len(p.payloads), fillers, len(sizes))
		}
		for i, size := range sizes {
			if got := len(p.payloads[fillers+i]); got != len(`{"text":""}`)+size {
				t.Fatalf("large job %d has %d bytes, want about %d", i, got, size)
			}
		}
		if p.jobs > 1000 || p.bytes > 2<<20 {
			t.Fatalf("a chunk of %d jobs and %d bytes", p.jobs, p.bytes)
		}
	})
}
