package web

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// maxScan is how many actions one page of a filtered list looks at.
const maxScan = 10_000

// unfinished is the value of the filter by status that finds actions which have not finished.
const unfinished = "unfinished"

// statuses are the choices of the filter by status; "" is all.
var statuses = []string{unfinished, "", string(bulk.Created), string(bulk.Dispatched), string(bulk.Running), string(bulk.Aggregating),
	string(bulk.Completed), string(bulk.Failed), string(bulk.Canceled)}

// pager has the links to other pages of a list; "" for none.
type pager struct{ First, Next string }

// page returns the links of a list: with the present parameters, and after the last row shown.
func (r *request) page(next string) pager {
	var p pager
	query := r.URL.Query()
	if query.Get("after") != "" {
		query.Del("after")
		p.First = "?" + query.Encode()
	}
	if next != "" {
		query.Set("after", next)
		p.Next = "?" + query.Encode()
	}
	return p
}

// cut returns a page of sorted names after the one that the request asks for, and the last of them if
// there are more.
func (r *request) cut(names []string) (page []string, next string) {
	from, found := slices.BinarySearch(names, r.get("after"))
	if found {
		from++
	}
	page = names[from:]
	if len(page) > pageSize {
		page = page[:pageSize]
		next = page[pageSize-1]
	}
	return page, next
}

// actionRow is an action in the list.
type actionRow struct {
	To, ID, Tenant, Callee  string
	Status                  pill
	Done, Total             int64
	Part                    string
	Failed, Waits, InFlight int64
	When                    string
}

// pill is a state as a word, with its class of color.
type pill struct{ Class, Text string }

type bulkList struct {
	Off bool
	// Path is that of the list: of all actions, or of streams.
	Path                 string
	Tenant, Type, Status string
	Statuses             []choice
	Actions              []actionRow
	Pages                pager
	Sub                  []link
}

// choice is an option of a form.
type choice struct {
	Value, Text string
	Selected    bool
}

func (d *Dashboard) showBulk() {
	d.show(Prefix+"bulk", "bulk", d.actions)
	d.show(Prefix+"bulk/action", "action", d.action)
	d.show(Prefix+"bulk/tenants", "tenants", d.tenants)
	d.show(Prefix+"bulk/targets", "targets", d.targets)
	d.show(Prefix+"bulk/streams", "bulk", d.actions)
	d.show(Prefix+"bulk/schedules", "schedules", d.schedules)
	d.show(Prefix+"bulk/schedule", "schedule", d.schedulePage)
	d.show(Prefix+"bulk/failures", "failures", d.deadLetters)
	d.show(Prefix+"bulk/workers", "workers", d.workers)
}

func bulkSub(r *request) []link {
	return r.sub([2]string{"bulk.actions", "bulk"}, [2]string{"bulk.streams", "bulk/streams"}, [2]string{"bulk.schedules", "bulk/schedules"},
		[2]string{"bulk.letters", "bulk/failures"}, [2]string{"bulk.tenants", "bulk/tenants"}, [2]string{"bulk.targets", "bulk/targets"},
		[2]string{"bulk.workers", "bulk/workers"})
}

// sub returns the links among the pages of a part, given the keys of their texts and their paths.
func (r *request) sub(pages ...[2]string) []link {
	var links []link
	for _, p := range pages {
		links = append(links, link{Text: r.t(p[0]), To: Prefix + p[1], Current: r.URL.Path == Prefix+p[1]})
	}
	return links
}

// actions shows the list of actions, or that of streams.
func (d *Dashboard) actions(r *request) (string, any, error) {
	title, streams := r.t("nav.bulk"), r.URL.Path == Prefix+"bulk/streams"
	if streams {
		title = r.t("bulk.streams")
	}
	list := bulkList{Path: r.URL.Path, Off: d.options.Bulk == nil, Tenant: r.get("tenant"), Type: r.get("type"), Status: r.get("status"), Sub: bulkSub(r)}
	if list.Off {
		return title, list, nil
	}
	if !r.URL.Query().Has("status") {
		list.Status = unfinished
	}
	for _, s := range statuses {
		list.Statuses = append(list.Statuses, choice{s, r.word("status.", statusKey(s)), s == list.Status})
	}
	found, next, err := d.find(r.Context(), bulk.ActionFilter{Tenant: list.Tenant, Callee: list.Type, Streams: streams, After: r.get("after")}, list.Status)
	for i := range found {
		list.Actions = append(list.Actions, d.actionRow(r.uiLanguage, &found[i]))
	}
	list.Pages = r.page(next)
	return title, list, err
}

// find returns a page of the actions that match, and after which to continue if there may be more.
func (d *Dashboard) find(ctx context.Context, filter bulk.ActionFilter, status string) (found []bulk.Action, next string, err error) {
	filter.Limit, filter.Look = pageSize+1, maxScan
	if status != unfinished {
		filter.Status = bulk.Status(status)
	}
	filter.Unfinished = status != "" && !filter.Status.Final() // which the store has in memory
	found, err = d.options.Bulk.Actions(ctx, filter)
	if further, ok := errors.AsType[*bulk.LookError](err); ok {
		next, err = further.After, nil
	}
	if len(found) > pageSize {
		found = found[:pageSize]
		next = found[pageSize-1].ID
	}
	return found, next, err
}

func statusKey(status string) string {
	if status == "" {
		return "all"
	}
	return status
}

func (l *uiLanguage) status(a *bulk.Action) pill {
	class := map[bulk.Status]string{bulk.Running: "on", bulk.Failed: "bad", bulk.Canceled: "warn"}[a.Status]
	if a.Paused && !a.Status.Final() {
		return pill{"warn", l.t("status.paused")}
	}
	return pill{class, l.word("status.", string(a.Status))}
}

func (d *Dashboard) actionRow(l *uiLanguage, a *bulk.Action) actionRow {
	row := actionRow{
		To: actionPath(a.ID), ID: a.ID, Tenant: a.Tenant, Callee: callee(&a.Spec), Status: l.status(a),
		Done: a.Done(), Total: max(a.Total, a.Received), Failed: a.Failed, InFlight: a.InFlight,
		Waits: a.Pending + a.Ready + a.NonReadyTotal(),
	}
	row.Part = percent(row.Done, row.Total)
	switch finish := d.options.Bulk.EstimatedFinish(a.ID); {
	case a.Status.Final():
		row.When = l.ago(a.FinishedAt)
	case !finish.IsZero() && !a.Paused:
		row.When = l.t("bulk.finishes", l.span(time.Until(finish)))
	default:
		row.When = l.t("bulk.created", l.ago(a.CreatedAt))
	}
	return row
}

// callee is what an action calls: its target, or else its type.
func callee(s *bulk.Spec) string {
	if s.Target != nil {
		return s.TargetName()
	}
	return s.Type
}

// term is one term of the equation of an action's counts.
type term struct {
	Text  string
	Count int64
}

type actionPage struct {
	actionRow
	Sub      []link
	Facts    []fact
	Received int64
	Terms    []term
	// Reason is why the first job that has not ended waits, and Why the same in the engine's words.
	Reason, Why string
	Failures    []failure
	Pages       pager
	Results     []fact
	// Replayed is the newest replay of the action's failures; "" if there is none.
	Replayed, ReplayedTo string
	// Acts are those that the action's status allows.
	Acts []link
}

type fact struct{ Name, Value string }

// failure is a job that failed permanently.
type failure struct {
	Index    int64
	Attempts int
	At       string
	Error    string
	Payload  content
}

func (d *Dashboard) action(r *request) (string, any, error) {
	if d.options.Bulk == nil {
		return "", nil, bulk.ErrNotFound
	}
	a, err := d.options.Bulk.Action(r.Context(), r.get("name"))
	if err != nil {
		return "", nil, err
	}
	page := actionPage{actionRow: d.actionRow(r.uiLanguage, &a), Sub: bulkSub(r), Received: a.Received}
	page.Facts = actionFacts(r.uiLanguage, &a)
	page.Terms = []term{
		{r.t("job.succeeded"), a.Succeeded}, {r.t("job.failed"), a.Failed}, {r.t("job.canceled"), a.Canceled}, {r.t("job.in_flight"), a.InFlight},
		{r.t("job.ready"), a.Ready}, {r.t("job.pending"), a.Pending},
	}
	for reason, n := range a.NonReady {
		page.Terms = append(page.Terms, term{r.word("why.", bulk.NonReadyReason(reason).String()), n})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Result)) {
		page.Results = append(page.Results, fact{name, show(a.Result[name]).Text})
	}
	if page.Reason, page.Why, err = d.why(r, &a); err != nil {
		return "", nil, err
	}
	switch {
	case a.Status.Final():
	case a.Paused:
		page.Acts = r.acts(a.ID, "resume_action", "cancel_action")
	default:
		page.Acts = r.acts(a.ID, "pause_action", "cancel_action")
	}
	if err = d.failures(r, &a, &page); len(page.Failures) > 0 && a.Replayable() {
		page.Acts = append(page.Acts, r.acts(a.ID, "replay_action")...)
	}
	if page.Replayed = a.LastReplay(); page.Replayed != "" {
		page.ReplayedTo = actionPath(page.Replayed)
	}
	return a.ID, page, err
}

func actionFacts(l *uiLanguage, a *bulk.Action) []fact {
	facts := []fact{
		{l.t("bulk.tenant"), a.Tenant}, {l.t("bulk.callee"), callee(&a.Spec)}, {l.t("bulk.class"), l.word("class.", a.Class.String())},
		{l.t("bulk.entered"), clock(a.CreatedAt)}, {l.t("bulk.finished"), clock(a.FinishedAt)},
		{l.t("bulk.retried"), number(a.Retried)}, {l.t("bulk.throttled"), number(a.Throttled)},
	}
	if target := a.Target.Redacted(); target != nil {
		facts = append(facts, fact{l.t("bulk.url"), target.URL})
	}
	for _, f := range []fact{{l.t("bulk.key"), a.Key}, {l.t("bulk.replay"), a.ReplayOf}, {l.t("bulk.error"), a.Error}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// why explains what holds back the first job that has not ended. One job is explained at a time, since
// it reads the backlog of all tenants.
func (d *Dashboard) why(r *request, a *bulk.Action) (reason, text string, err error) {
	if a.Status.Final() {
		return "", "", nil
	}
	select {
	case d.explaining <- struct{}{}:
		defer func() { <-d.explaining }()
	case <-r.Context().Done():
		return "", "", r.Context().Err()
	}
	x, err := d.options.Bulk.Why(r.Context(), a.ID, bulk.FirstJob)
	if errors.Is(err, bulk.ErrNoJob) || err == nil && x.Reason == "" {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	return r.word("why.", x.Reason), x.Text, nil
}

// failures adds a page of the dead letters.
func (d *Dashboard) failures(r *request, a *bulk.Action, page *actionPage) error {
	from, _ := strconv.ParseInt(r.get("after"), 10, 64) // else from the first
	if a.Failed == 0 {
		return nil
	}
	letters, err := d.options.Bulk.DeadLetters(r.Context(), a.ID, from, pageSize+1)
	if err != nil {
		return err
	}
	next := ""
	if len(letters) > pageSize {
		next = strconv.FormatInt(letters[pageSize].Index, 10)
		letters = letters[:pageSize]
	}
	for _, l := range letters {
		page.Failures = append(page.Failures, newFailure(&l))
	}
	page.Pages = r.page(next)
	return nil
}

// tenantRow is what a tenant has, and gets.
type tenantRow struct {
	Name, To                   string
	Weight, Limit, Concurrency string
	Rate, Share                string
	Stored, Most               []string // what it has stored, and its quotas
	Part                       int64    // of 1,000
}

type tenantList struct {
	Off     bool
	Sub     []link
	Tenants []tenantRow
	Pages   pager
}

func (d *Dashboard) tenants(r *request) (string, any, error) {
	list := tenantList{Off: d.options.Bulk == nil, Sub: bulkSub(r)}
	if list.Off {
		return r.t("bulk.tenants"), list, nil
	}
	settings, err := d.options.Bulk.Settings(r.Context())
	if err != nil {
		return "", nil, err
	}
	now, before := d.history.minute()
	all := rate(now, before, total("bulk_action_jobs_total"))
	names, next := r.cut(union(maps.Keys(settings.Tenants), maps.Keys(now.labeled["bulk_action_jobs_total"])))
	stored, err := d.options.Bulk.StoredOf(r.Context(), names)
	if err != nil && !errors.Is(err, bulk.ErrUnavailable) {
		return "", nil, err
	}
	for _, name := range names {
		t := settings.Tenants[name].WithDefaults()
		jobs := rate(now, before, of("bulk_action_jobs_total", name))
		row := tenantRow{
			Name: name, To: "bulk?" + url.Values{"tenant": {name}}.Encode(), Weight: decimal(t.Weight), Limit: limit(t.RequestsPerSecond),
			Concurrency: limit(float64(t.Concurrency)), Rate: decimal(jobs), Share: "–", Stored: r.stored(stored[name]), Most: r.stored(bulk.Stored{Actions: t.MaxActions, Jobs: t.MaxJobs, Bytes: t.MaxBytes}),
		}
		if all > 0 {
			row.Part = int64(1000 * jobs / all)
			row.Share = percent(row.Part, 1000)
		}
		list.Tenants = append(list.Tenants, row)
	}
	list.Pages = r.page(next)
	return r.t("bulk.tenants"), list, nil
}

// stored shows what a tenant has stored, or may have, without what is 0.
func (r *request) stored(s bulk.Stored) (parts []string) {
	if s.Actions > 0 {
		parts = append(parts, r.t("tenant.actions", number(s.Actions)))
	}
	if s.Jobs > 0 {
		parts = append(parts, r.t("tenant.jobs", number(s.Jobs)))
	}
	if s.Bytes > 0 {
		parts = append(parts, size(s.Bytes))
	}
	return parts
}

// limit shows a limit, of which 0 is none.
func limit(f float64) string {
	if f == 0 {
		return "–"
	}
	return decimal(f)
}

// union returns the names of several maps, sorted.
func union(names ...iter.Seq[string]) []string {
	var all []string
	for _, some := range names {
		all = slices.AppendSeq(all, some)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// targetRow is a target, its limits and what was found.
type targetRow struct {
	Name, URL, To     string
	Rate, Concurrency string
	// AutoRate and AutoConcurrency report that the figure was found.
	AutoRate, AutoConcurrency bool
	Down                      string
}

type targetList struct {
	Off     bool
	Sub     []link
	Targets []targetRow
	Pages   pager
}

func (d *Dashboard) targets(r *request) (string, any, error) {
	list := targetList{Off: d.options.Bulk == nil, Sub: bulkSub(r)}
	if list.Off {
		return r.t("bulk.targets"), list, nil
	}
	settings, err := d.options.Bulk.Settings(r.Context())
	if err != nil {
		return "", nil, err
	}
	now := d.history.now()
	names, next := r.cut(union(maps.Keys(settings.Targets),
		maps.Keys(now.labeled["bulk_action_target_found_concurrency"]), maps.Keys(now.labeled["bulk_action_target_down"])))
	for _, name := range names {
		row, err := d.targetRow(r, name, settings.Targets[name])
		if err != nil {
			return "", nil, err
		}
		list.Targets = append(list.Targets, row)
	}
	list.Pages = r.page(next)
	return r.t("bulk.targets"), list, nil
}

func (d *Dashboard) targetRow(r *request, name string, t bulk.TargetLimits) (targetRow, error) {
	load := d.options.Bulk.FoundLoad(name)
	row := targetRow{
		Name: name, URL: t.URLPrefix, To: "bulk?" + url.Values{"type": {name}}.Encode(),
		Rate: limit(t.RequestsPerSecond), Concurrency: limit(float64(t.Concurrency)),
		AutoRate: t.Auto, AutoConcurrency: t.Concurrency == 0 && load.Concurrency > 0,
	}
	if !load.DownSince.IsZero() {
		row.Down = r.t("bulk.down", r.span(time.Since(load.DownSince)))
	}
	if row.AutoConcurrency {
		row.Concurrency = number(int64(load.Concurrency))
	}
	if t.Auto {
		found, err := d.options.Bulk.FoundRate(r.Context(), name)
		if err != nil {
			return targetRow{}, err
		}
		row.Rate = decimal(found)
	}
	return row, nil
}
