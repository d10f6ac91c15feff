package api_test

import (
	"errors"
	"iter"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
)

type parcel struct {
	Number int    `json:"number"`
	Note   string `json:"note"`
}

func (parcel) JobType() string { return "parcel:send" }

var errSource = errors.New("the source is away")

// parcels are n of them, or fewer if the source fails after some.
func parcels(n, failAfter int) iter.Seq2[parcel, error] {
	return func(yield func(parcel, error) bool) {
		for i := range n {
			if i == failAfter {
				yield(parcel{}, errSource)
				return
			}
			if !yield(parcel{Number: i, Note: "a\nb"}, nil) {
				return
			}
		}
	}
}

// TestInsertOnAServer makes an action of typed values through a real connection,
// in two runs.
func TestInsertOnAServer(t *testing.T) {
	f := newFixture(t)
	c := f.connect()
	ctx := t.Context()
	spec := bulk.Spec{ID: "march", Tenant: "acme"}
	a, err := bulk.InsertFrom(ctx, c.Inserter(), spec, parcels(2500, 2100))
	if !errors.Is(err, errSource) || a.ID != "march" || a.Type != "parcel:send" {
		t.Fatalf("%v, %+v", err, a)
	}
	if n := len(f.engine.actions[0].payloads); n != 2000 {
		t.Errorf("%d jobs came before the source failed, want two chunks of 1,000", n)
	}
	a, err = bulk.InsertFrom(ctx, c.Inserter(), spec, parcels(2500, -1))
	if err != nil || a.Status != bulk.Dispatched || a.Total != 2500 || a.Received != 2500 {
		t.Fatalf("%v, %+v", err, a)
	}
	if n, last := len(f.engine.actions[0].payloads), f.engine.actions[0].payloads[2499]; n != 2500 || last != `{"number":2499,"note":"a\nb"}` {
		t.Errorf("%d jobs, the last is %s", n, last)
	}
	if a, err = bulk.InsertFrom(ctx, c.Inserter(), spec, parcels(2500, 0)); err != nil || a.Total != 2500 {
		t.Errorf("what is sealed is returned as it is: %v, %+v", err, a)
	}
	spec.Class = bulk.High
	if _, err = bulk.Insert(ctx, c.Inserter(), spec, parcel{}); !client.IsCode(err, wire.CodeExists) {
		t.Errorf("another body: %v", err)
	}
	if a, err = bulk.Insert(ctx, c.Inserter(), bulk.Spec{Tenant: "acme"}, parcel{1, ""}, parcel{2, ""}); err != nil || a.ID == "" || a.Total != 2 {
		t.Errorf("without an id: %v, %+v", err, a)
	}
}

// Every field of a spec reaches the engine, and every field of an action that the
// API tells comes back.
func TestSpecsAndActionsThroughTheClient(t *testing.T) {
	f := newFixture(t)
	in := f.connect().Inserter()
	share := 0.25
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, spec := range []bulk.Spec{
		{ID: "typed", Tenant: "a", Type: "t", Class: bulk.Low, Key: "customer 7", Aggregate: []string{"count", "sum:n"}, RunAt: at, MaxAttempts: 7, Timeout: 90 * time.Second, FailAbove: &share, Events: []string{"jobs"}},
		{ID: "webhook", Tenant: "b", Target: &bulk.Target{Name: "shop", URL: "http://shop.test/x"}, Class: bulk.High},
		{ID: "short", Tenant: "c", Type: "t", Timeout: 1100 * time.Microsecond},
	} {
		if _, _, err := in.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		want := spec
		if spec.Target != nil {
			want.Type = bulk.WebhookType
		}
		want.Timeout = (spec.Timeout + time.Millisecond - 1).Truncate(time.Millisecond)
		if got := f.engine.actions[len(f.engine.actions)-1].Spec; !got.Equal(want) {
			t.Errorf("the engine was asked for\n%+v, want\n%+v", got, want)
		}
		f.engine.edit(spec.ID, func(a *fakeAction) {
			a.Action = bulk.Action{
				Spec: a.Spec, Status: bulk.Completed, Paused: true, Total: 10, CreatedAt: at, EnteredAt: at, FinishedAt: at.Add(time.Hour),
				Result: a.Result, Error: "e",
				Counts: bulk.Counts{
					Received: 10, Pending: 1, Ready: 2, NonReady: [4]int64{3, 4, 5}, InFlight: 6, Succeeded: 7, Failed: 8, Canceled: 9, Throttled: 10, Retried: 11,
				},
			}
		})
		got, _, err := in.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		told := f.engine.actions[len(f.engine.actions)-1].Action
		told.EnteredAt = time.Time{} // the API does not tell it
		told.Aggregate, told.MaxAttempts, told.Timeout, told.FailAbove, told.Events = nil, 0, 0, nil, nil
		got.Result = told.Result // empty or null
		if !reflect.DeepEqual(got, told) {
			t.Errorf("the action came back as\n%+v, want\n%+v", got, told)
		}
	}
}
