package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"

	"github.com/sluice-project/sluice/bulk"
)

// The bounds of one page of dead letters, and of counting those of one action.
const (
	letterScan  = 2000 // actions that it looks at
	letterReads = 200  // actions with failures that it reads
	maxCounted  = 10_000
	countedPage = 1000
)

// letterRow is a job that failed permanently, in a list of those of several actions.
type letterRow struct {
	failure
	Action, To, Tenant, Callee string
}

type letterList struct {
	Off          bool
	Sub          []link
	Tenant, Type string
	Letters      []letterRow
	Pages        pager
	Acts         []link
}

func (d *Dashboard) deadLetters(r *request) (string, any, error) {
	list := letterList{Off: d.options.Bulk == nil, Sub: bulkSub(r), Tenant: r.get("tenant"), Type: r.get("type")}
	if list.Off {
		return r.t("bulk.letters"), list, nil
	}
	find := letterFinder{bulk: d.options.Bulk, filter: bulk.ActionFilter{Tenant: list.Tenant, Callee: list.Type, Look: letterScan}}
	if err := find.from(r.Context(), r.get("after")); err != nil {
		return "", nil, err
	}
	list.Letters, list.Pages = find.found, r.page(find.next)
	if list.Tenant != "" && len(list.Letters) > 0 {
		list.Acts = r.acts(list.Tenant, "replay_tenant")
	}
	return r.t("bulk.letters"), list, nil
}

// letterFinder collects a page of dead letters of the actions that match, in the order of their creation. Its cursor is
// the id of the last job that was read.
type letterFinder struct {
	bulk   Bulk
	filter bulk.ActionFilter
	found  []letterRow
	next   string // "" if there are no more
}

func (f *letterFinder) from(ctx context.Context, after string) error {
	if after != "" {
		id, index, err := bulk.ParseJobID(after)
		if err != nil {
			return &statusError{http.StatusBadRequest, err}
		}
		if f.filter.After = id; index < math.MaxInt64 {
			a, err := f.bulk.Action(ctx, id)
			if err != nil {
				return err
			}
			if full, err := f.read(ctx, &a, index+1); err != nil || full {
				return err
			}
		}
	}
	actions, err := f.bulk.Actions(ctx, f.filter)
	further, more := errors.AsType[*bulk.LookError](err)
	if err != nil && !more {
		return err
	}
	reads := 0
	for i := range actions {
		a := &actions[i]
		if a.Failed == 0 {
			continue
		}
		if reads == letterReads {
			f.next = bulk.JobID(actions[i-1].ID, math.MaxInt64)
			return nil
		}
		reads++
		if full, err := f.read(ctx, a, 0); err != nil || full {
			return err
		}
	}
	if more {
		f.next = bulk.JobID(further.After, math.MaxInt64)
	}
	return nil
}

// read adds the letters of an action from an index on, and reports whether the page is full. An action may have been
// forgotten.
func (f *letterFinder) read(ctx context.Context, a *bulk.Action, from int64) (full bool, err error) {
	want := pageSize - len(f.found)
	letters, err := f.bulk.DeadLetters(ctx, a.ID, from, want)
	if errors.Is(err, bulk.ErrNotFound) {
		return false, nil
	}
	for _, l := range letters {
		f.found = append(f.found, letterRow{newFailure(&l), a.ID, actionPath(a.ID), a.Tenant, callee(&a.Spec)})
	}
	if len(f.found) == pageSize {
		f.next = bulk.JobID(a.ID, letters[len(letters)-1].Index)
	}
	return f.next != "", err
}

func newFailure(l *bulk.DeadLetter) failure {
	return failure{l.Index, l.Attempts, clock(l.FailedAt), l.Error, show(l.Payload)}
}

func lettersPath(tenant string) string {
	return Prefix + "bulk/failures?" + url.Values{"tenant": {tenant}}.Encode()
}

// countLetters counts the dead letters of an action, up to maxCounted.
func (d *Dashboard) countLetters(ctx context.Context, id string) (n int64, all bool, err error) {
	for from := int64(0); n < maxCounted; {
		letters, err := d.options.Bulk.DeadLetters(ctx, id, from, countedPage)
		if err != nil || len(letters) == 0 {
			return n, true, err
		}
		n += int64(len(letters))
		from = letters[len(letters)-1].Index + 1
	}
	return n, false, nil
}

// askReplay counts what a replay of an action would run again.
func askReplay(d *Dashboard, r *request, name, _ string) (string, error) {
	a, err := d.options.Bulk.Action(r.Context(), name)
	if err != nil {
		return "", err
	}
	n, all, err := d.countLetters(r.Context(), name)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", &bulk.TransitionError{ID: name, From: a.Status, Why: "it has no dead letters to replay"}
	case !a.Replayable():
		return "", &bulk.TransitionError{ID: name, From: a.Status, Why: "its failures can be replayed when it has finished"}
	case !all:
		return r.t("ask.replay_many", a.ID, a.Tenant, number(n)), nil
	}
	return r.t("ask.replay_action", a.ID, a.Tenant, number(n)), nil
}

// replayOf is the change that replays the failures of all actions of a tenant.
func replayOf(tenant string) bulk.Change { return bulk.Change{Do: bulk.DoReplay, Tenant: tenant} }

func askReplayTenant(d *Dashboard, r *request, name, _ string) (string, error) {
	change := replayOf(name)
	change.DryRun = true
	would, err := d.options.Bulk.Change(r.Context(), change)
	if err != nil {
		return "", err
	}
	key := "ask.replay_tenant"
	if would.Next != "" {
		key = "ask.replay_some"
	}
	return r.t(key, name, number(int64(would.Changed)), number(would.Jobs)), nil
}

func replayTenant(ctx context.Context, d *Dashboard, name, _ string) error {
	_, err := d.options.Bulk.Change(ctx, replayOf(name))
	return err
}
