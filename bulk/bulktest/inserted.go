package bulktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/bulk"
)

// MaxInserted is the maximum of jobs of one action that are kept for RequireJobs.
const MaxInserted = 10_000

// inserted is a store that keeps the appended jobs.
type inserted struct {
	bulk.Store

	mu   sync.Mutex
	jobs map[string]map[int64][]byte // by action and index
}

// Append implements bulk.Store.
func (s *inserted) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	received, err := s.Store.Append(ctx, id, offset, payloads)
	if err != nil {
		return received, err
	}
	if offset == bulk.AtEnd {
		offset = received - int64(len(payloads))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[id] == nil {
		s.jobs[id] = map[int64][]byte{}
	}
	for i, payload := range payloads {
		index := offset + int64(i)
		if _, there := s.jobs[id][index]; !there && index < MaxInserted {
			s.jobs[id][index] = bytes.Clone(payload)
		}
	}
	return received, nil
}

// of returns the payloads of an action.
func (s *inserted) of(t testing.TB, a bulk.Action) [][]byte {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Received > MaxInserted {
		t.Fatalf("action %q has %d jobs; only %d of one action are kept", a.ID, a.Received, MaxInserted)
	}
	payloads := make([][]byte, a.Received)
	for i := range payloads {
		payloads[i] = s.jobs[a.ID][int64(i)]
	}
	return payloads
}

// actions returns the actions of a tenant and a type; empty selects all.
func (e *Engine) actions(t testing.TB, tenant, jobType string) (found, all []bulk.Action) {
	t.Helper()
	all, err := e.Actions(context.WithoutCancel(t.Context()), bulk.ActionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if (tenant == "" || a.Tenant == tenant) && (jobType == "" || a.Type == jobType) {
			found = append(found, a)
		}
	}
	return found, all
}

// RequireAction fails the test unless there is exactly one action of that tenant and type,
// and returns it. Empty selects all.
func RequireAction(t testing.TB, e *Engine, tenant, jobType string) bulk.Action {
	t.Helper()
	found, all := e.actions(t, tenant, jobType)
	if len(found) == 1 {
		return found[0]
	}
	t.Fatalf("%d actions of tenant %q and type %q; want one. There are:%s", len(found), tenant, jobType, list(all, describe))
	panic("unreachable")
}

// Jobs returns the jobs of T's type that were inserted for a tenant, in the order of their
// actions' creation and then of their upload. An empty tenant selects all. An action may have
// at most MaxInserted jobs.
func Jobs[T bulk.Args](t testing.TB, e *Engine, tenant string) (jobs []T) {
	t.Helper()
	found, _ := e.actions(t, tenant, bulk.JobType[T]())
	for _, a := range found {
		for i, payload := range e.store.of(t, a) {
			var args T
			if err := json.Unmarshal(payload, &args); err != nil {
				t.Fatalf("job %s is not a %T: %v: %s", bulk.JobID(a.ID, int64(i)), args, err, payload)
			}
			jobs = append(jobs, args)
		}
	}
	return jobs
}

// RequireJobs fails the test unless the jobs of T's type that were inserted for a tenant are
// those wanted, in order; see Jobs. They are compared as JSON.
func RequireJobs[T bulk.Args](t testing.TB, e *Engine, tenant string, want ...T) {
	t.Helper()
	got := Jobs[T](t, e, tenant)
	text := func(job T) string { return string(encode(t, job)) }
	same := len(got) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = sameJSON([]byte(text(got[i])), []byte(text(want[i])))
	}
	if !same {
		_, all := e.actions(t, "", "")
		t.Fatalf("%d jobs were inserted for tenant %q:%s\nwant %d:%s\nThere are actions:%s",
			len(got), tenant, list(got, text), len(want), list(want, text), list(all, describe))
	}
}

// RequireDeadLetters fails the test unless an action has as many dead letters as texts, and
// the error of each contains its text, by index of the jobs. Without texts the action must
// have none. It returns the dead letters, at most 1,000.
func RequireDeadLetters(t testing.TB, e *Engine, id string, texts ...string) []bulk.DeadLetter {
	t.Helper()
	letters, err := e.DeadLetters(context.WithoutCancel(t.Context()), id, 0, 1000)
	if err != nil {
		t.Fatalf("dead letters of action %q: %v", id, err)
	}
	same := len(letters) == len(texts)
	for i := 0; same && i < len(texts); i++ {
		same = strings.Contains(letters[i].Error, texts[i])
	}
	if !same {
		t.Fatalf("action %q has %d dead letters:%s\nwant %d:%s", id, len(letters), list(letters, describeLetter), len(texts), list(texts, func(s string) string { return s }))
	}
	return letters
}

func describeLetter(l bulk.DeadLetter) string {
	return fmt.Sprintf("%s, %d attempts, %s: %s", bulk.JobID(l.Action, l.Index), l.Attempts, l.Payload, l.Error)
}

// RequireCounts fails the test unless an action has finished in that status, with these
// numbers of succeeded and failed jobs, and consistent counts.
func RequireCounts(t testing.TB, a bulk.Action, status bulk.Status, succeeded, failed int64) {
	t.Helper()
	if a.Status != status || a.Succeeded != succeeded || a.Failed != failed {
		t.Fatalf("there is %s; want %s with %d succeeded and %d failed", describe(a), status, succeeded, failed)
	}
	if a.Done() != a.Received || a.Pending+a.Ready+a.NonReadyTotal()+a.InFlight != 0 {
		t.Fatalf("the counts of a finished action do not add up: %+v", a.Counts)
	}
}

// maxListed is the maximum of items that a failure lists.
const maxListed = 20

// list writes each item on its own line.
func list[T any](items []T, text func(T) string) string {
	if len(items) == 0 {
		return " none"
	}
	var lines strings.Builder
	for i, item := range items {
		if i == maxListed {
			fmt.Fprintf(&lines, "\n  … and %d more", len(items)-maxListed)
			break
		}
		lines.WriteString("\n  " + text(item))
	}
	return lines.String()
}
