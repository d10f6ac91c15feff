package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// letterRow is a job that failed permanently, in a list of those of several actions.
type letterRow struct {
	failure
	Action, To, Tenant, Callee string
	// Acts are those on the action, in its first row.
	Acts []link
}

// letterList is the page of dead letters, and what selects them as the form has it.
type letterList struct {
	Off                                      bool
	Sub                                      []link
	Tenant, Type, Cause, Error, Since, Until string
	Letters                                  []letterRow
	Pages                                    pager
	Acts                                     []link
}

func (d *Dashboard) deadLetters(r *request) (string, any, error) {
	list := letterList{
		Off: d.options.Bulk == nil, Sub: bulkSub(r), Tenant: r.get("tenant"), Type: r.get("type"), Cause: r.get("cause"), Error: r.get("error"),
		Since: r.get("since"), Until: r.get("until"),
	}
	if list.Off {
		return r.t("bulk.letters"), list, nil
	}
	query := selection(r.URL.Query())
	filter, err := letterFilter(query)
	if err != nil {
		return "", nil, err
	}
	filter.After, filter.Limit = r.get("after"), pageSize
	found, err := engine.FindLetters(r.Context(), d.options.Bulk, filter)
	if err != nil {
		return "", nil, wrongField(err)
	}
	for i := range found.Found {
		l := &found.Found[i]
		row := letterRow{failure: newFailure(&l.DeadLetter), Action: l.Spec.ID, To: actionPath(l.Spec.ID), Tenant: l.Spec.Tenant, Callee: callee(l.Spec)}
		if i == 0 || found.Found[i-1].Spec.ID != row.Action {
			row.Acts = r.acts(row.Action, "replay_action")
		}
		list.Letters = append(list.Letters, row)
	}
	list.Pages = r.page(found.Next)
	if len(query) > 0 && (len(list.Letters) > 0 || found.Next != "") {
		list.Acts = r.acts(query.Encode(), "replay_found")
	}
	return r.t("bulk.letters"), list, nil
}

// lettersBy are the parameters that select dead letters, each with the key of its text.
var lettersBy = [][2]string{
	{"tenant", "bulk.tenant"}, {"type", "bulk.callee"}, {"cause", "letters.cause"}, {"error", "job.error"}, {"since", "letters.since"}, {"until", "letters.until"},
}

// selection returns those parameters of a query that select dead letters.
func selection(query url.Values) url.Values {
	some := url.Values{}
	for _, by := range lettersBy {
		if value := query.Get(by[0]); value != "" {
			some.Set(by[0], value)
		}
	}
	return some
}

// letterFilter returns what a selection selects.
func letterFilter(query url.Values) (f engine.LetterFilter, err error) {
	f.Tenant, f.Callee, f.Cause, f.Error = query.Get("tenant"), query.Get("type"), query.Get("cause"), query.Get("error")
	if query.Has("since") {
		f.Since, err = parseTime(query.Get("since"))
	}
	if query.Has("until") && err == nil {
		f.Until, err = parseTime(query.Get("until"))
	}
	return f, err
}

// wrongField gives the error of a wrong parameter the status of one.
func wrongField(err error) error {
	if errors.As(err, new(*engine.ChangeError)) {
		return &statusError{http.StatusBadRequest, err}
	}
	return err
}

func newFailure(l *bulk.DeadLetter) failure {
	return failure{l.Index, l.Attempts, clock(l.FailedAt), l.Error, show(l.Payload)}
}

// lettersPath is the page of the dead letters of an encoded selection.
func lettersPath(query string) string { return Prefix + "bulk/failures?" + query }

// askReplay counts what a replay of an action would run again.
func askReplay(d *Dashboard, r *request, name, _ string) (string, error) {
	a, err := d.options.Bulk.Action(r.Context(), name)
	if err != nil {
		return "", err
	}
	if !a.Replayable() {
		return "", &bulk.TransitionError{ID: name, From: a.Status, Why: "its failures can be replayed when it has finished"}
	}
	would, err := d.options.Bulk.Change(r.Context(), engine.Change{Do: engine.DoReplay, Action: name, DryRun: true})
	if err == nil && would.Changed == 0 {
		err = &bulk.TransitionError{ID: name, From: a.Status, Why: "it has no dead letters to replay"}
	}
	return r.t("ask.replay_action", a.ID, a.Tenant, number(would.Jobs)), err
}

// replayOf is the change that replays the dead letters of an encoded selection.
func replayOf(name string) (engine.Change, error) {
	query, err := url.ParseQuery(name)
	if err != nil {
		return engine.Change{}, &statusError{http.StatusBadRequest, err}
	}
	f, err := letterFilter(query)
	return engine.Change{Do: engine.DoReplay, Tenant: f.Tenant, Callee: f.Callee, Only: f.FailureFilter}, err
}

func askReplayFound(d *Dashboard, r *request, name, _ string) (string, error) {
	change, err := replayOf(name)
	if err != nil {
		return "", err
	}
	change.DryRun = true
	would, err := d.options.Bulk.Change(r.Context(), change)
	if err != nil {
		return "", wrongField(err)
	}
	key := "ask.replay_found"
	if would.Next != "" {
		key = "ask.replay_some"
	}
	query, _ := url.ParseQuery(name) // as before
	var by []string
	for _, each := range lettersBy {
		if value := query.Get(each[0]); value != "" {
			by = append(by, r.t(each[1])+" "+value)
		}
	}
	return r.t(key, strings.Join(by, ", "), number(int64(would.Changed)), number(would.Jobs)), nil
}

func replayFound(ctx context.Context, d *Dashboard, name, _ string) error {
	change, err := replayOf(name)
	if err == nil {
		_, err = d.options.Bulk.Change(ctx, change)
	}
	return wrongField(err)
}

func replayAction(ctx context.Context, d *Dashboard, name, _ string) error {
	_, err := d.options.Bulk.Replay(ctx, name, bulk.FailureFilter{})
	return err
}
