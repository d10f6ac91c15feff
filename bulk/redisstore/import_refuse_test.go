//go:build redis

package redisstore

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// paperImage is an image of some actions, built for a test.
type paperImage struct {
	actions []bulk.ActionImage
	jobs    []bulk.JobImage
}

func one[T any](items ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

func (p *paperImage) Facts() bulk.ImageFacts                      { return bulk.ImageFacts{Highest: 5000} }
func (p *paperImage) Schedules() iter.Seq2[bulk.Schedule, error]  { return one[bulk.Schedule]() }
func (p *paperImage) Events() iter.Seq2[[]bulk.Event, error]      { return one[[]bulk.Event]() }
func (p *paperImage) Actions() iter.Seq2[bulk.ActionImage, error] { return one(p.actions...) }
func (p *paperImage) Jobs(*bulk.ActionImage) iter.Seq2[[]bulk.JobImage, error] {
	return one(p.jobs)
}

func (p *paperImage) Payloads(_ *bulk.ActionImage, _, count int64) iter.Seq2[[][]byte, error] {
	payloads := make([][]byte, count)
	for i := range payloads {
		payloads[i] = []byte("1")
	}
	return one(payloads)
}

func (p *paperImage) Outcomes(*bulk.ActionImage) iter.Seq2[[]bulk.Outcome, error] {
	return one[[]bulk.Outcome]()
}

func (p *paperImage) DeadLetters(*bulk.ActionImage) iter.Seq2[[]bulk.DeadLetter, error] {
	return one[[]bulk.DeadLetter]()
}

func (p *paperImage) Results(*bulk.ActionImage) iter.Seq2[bulk.ResultImage, error] {
	return one[bulk.ResultImage]()
}

// paperAction returns an action with three jobs, one of them in flight.
func paperAction() bulk.ActionImage {
	return bulk.ActionImage{
		Action: bulk.Action{
			Spec: bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, Status: bulk.Running, Total: 3,
			CreatedAt: time.Now(), EnteredAt: time.Now(), Counts: bulk.Counts{Received: 3, Pending: 1, InFlight: 1, Succeeded: 1},
		},
		Number: 4711, Live: true, Next: 2,
	}
}

func paperJobs() []bulk.JobImage {
	return []bulk.JobImage{
		{Index: 0, Phase: bulk.PhaseSucceeded, Fence: 1},
		{Index: 1, Phase: bulk.PhaseInFlight, Fence: 2, Attempts: 2, At: time.Now().Add(time.Hour)},
	}
}

func importOptions(t *testing.T, redis *redistest.Server) Options {
	t.Helper()
	return Options{URL: redis.URL(), Logger: slog.New(slog.DiscardHandler), Bulk: bulk.Config{RequestsPerSecond: -1}.WithDefaults()}
}

// TestImportRefusesWhatDoesNotAddUp checks that an inconsistent image is refused, and that
// the store cannot be opened until that is corrected.
func TestImportRefusesWhatDoesNotAddUp(t *testing.T) {
	t.Parallel()
	redis, ctx := redistest.Start(t, redistest.Options{}), context.Background()
	for _, test := range []struct {
		name   string
		change func(*paperImage)
		says   string
	}{
		{"too many jobs", func(p *paperImage) { p.actions[0].Received = MaxJobs + 1 }, "at most 16777216"},
		{"a job less", func(p *paperImage) { p.jobs = p.jobs[1:] }, "0 of its jobs succeeded"},
		{"a dead letter less", func(p *paperImage) { p.actions[0].Dead = 1 }, "0 dead letters, which should be 1"},
		{"a job in flight more", func(p *paperImage) { p.actions[0].InFlight = 2 }, "1 are in flight"},
		{"more that wait", func(p *paperImage) { p.actions[0].Pending = 2 }, "0 jobs that wait in front, which should be 1"},
		{"a job that came back", func(p *paperImage) { p.jobs[1].Phase = bulk.PhaseWaits }, "0 are in flight"},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := importOptions(t, redis)
			options.Prefix = strings.ReplaceAll(test.name, " ", "-") + ":"
			image := &paperImage{[]bulk.ActionImage{paperAction()}, paperJobs()}
			test.change(image)
			m, err := OpenImport(ctx, options, importOne, image)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var wrong *bulk.ImageError
			if err := m.run(ctx, image); !errors.As(err, &wrong) || wrong.Action != "a" || !strings.Contains(wrong.Why, test.says) {
				t.Errorf("it is taken over with %v, want %q", err, test.says)
			}
			var unfinished *UnfinishedImportError
			if _, err := Open(ctx, options); !errors.As(err, &unfinished) {
				t.Errorf("the store opens: %v", err)
			}
		})
	}
}

// TestImportIntoWhatIsThere checks that a store accepts one image, and only while it has no
// actions, and that leases are recognized only by the numbers that actions had in the image.
func TestImportIntoWhatIsThere(t *testing.T) {
	t.Parallel()
	redis, ctx := redistest.Start(t, redistest.Options{}), context.Background()
	options := importOptions(t, redis)
	image := &paperImage{[]bulk.ActionImage{paperAction()}, paperJobs()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	other := &paperImage{[]bulk.ActionImage{paperAction()}, paperJobs()}
	other.actions[0].Number = 4000
	first, err := OpenImport(ctx, options, ImportOptions{ID: "first", From: "elsewhere"}, other)
	must(err)
	must(first.Stage(ctx, other))
	given, _ := first.numberOf(&other.actions[0])
	must(first.Close())

	var unfinished *UnfinishedImportError
	for _, check := range []func() error{
		func() error { _, err := OpenImport(ctx, options, importOne, image); return err },
		func() error { return CheckImport(ctx, options, importOne) },
	} {
		if err := check(); !errors.As(err, &unfinished) || unfinished.From != "elsewhere" || unfinished.Begun == "" {
			t.Fatalf("the second import: %v, want an *UnfinishedImportError", err)
		}
	}
	discard := importOne
	discard.Discard = true
	must(CheckImport(ctx, options, discard))
	second, err := OpenImport(ctx, options, discard, image)
	must(err)
	must(second.run(ctx, image))
	must(second.run(ctx, image)) // has no effect
	left, err := second.s.db.Do(ctx, second.s.db.B().Keys().Pattern("*:"+number(int64(given))+"*").Build()).AsStrSlice()
	must(err)
	if len(left) > 0 {
		t.Errorf("of what was given up there is %v", left)
	}
	must(second.Close())
	must(CheckImport(ctx, options, importOne))

	s, err := Open(ctx, options)
	must(err)
	defer s.Close()
	checkImportedLeases(t, s)
	var others *OtherActionsError
	third := ImportOptions{ID: "third", Discard: true}
	if _, err := OpenImport(ctx, options, third, image); !errors.As(err, &others) || others.Actions != 1 {
		t.Errorf("an import into a store with an action: %v", err)
	}
	if err := CheckImport(ctx, options, third); !errors.As(err, &others) {
		t.Errorf("a store with an action would take an image: %v", err)
	}
}

// checkImportedLeases settles the leases of paperAction.
func checkImportedLeases(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	verdicts, err := s.Settle(ctx, []bulk.Settlement{
		{Lease: bulk.LeaseID{Action: 4711, Index: 1, Fence: 2}, Kind: bulk.Succeeded},
		{Lease: bulk.LeaseID{Action: 4711, Index: 0, Fence: 1}, Kind: bulk.Succeeded},
		{Lease: bulk.LeaseID{Action: 4710, Index: 0, Fence: 1}, Kind: bulk.Succeeded},
	})
	if err != nil {
		t.Fatal(err)
	}
	if verdicts[0] != bulk.Accepted || verdicts[1] != bulk.Duplicate || verdicts[2] != bulk.Unknown {
		t.Errorf("leases are %v", verdicts)
	}
	found, err := s.Actions(ctx, bulk.ActionFilter{Number: 4711})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].ID != "a" || found[0].Succeeded != 2 {
		t.Errorf("the action by its number there: %+v", found)
	}
}
