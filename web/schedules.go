package web

import (
	"context"

	"github.com/sluice-project/sluice/bulk"
)

type scheduleRow struct {
	Name, To, Cron, Zone, Tenant, Callee string
	Paused                               bool
	Next, Last                           string
	Error                                string
	// Acts are those of a list.
	Acts []link
}

type scheduleList struct {
	Off       bool
	Sub       []link
	Schedules []scheduleRow
	Pages     pager
}

type schedulePage struct {
	scheduleRow
	Sub []link
	// LastTo leads to the last run.
	LastAction, LastTo string
	Facts              []fact
	Jobs               []content
	More               string
}

// maxJobs is how many jobs of a schedule its page shows.
const maxJobs = 10

func schedulePath(name string) string { return named("bulk/schedule", name) }

func (d *Dashboard) schedules(r *request) (string, any, error) {
	list := scheduleList{Off: d.options.Bulk == nil, Sub: bulkSub(r)}
	if list.Off {
		return r.t("bulk.schedules"), list, nil
	}
	all, err := d.options.Bulk.Schedules(r.Context())
	if err != nil {
		return "", nil, err
	}
	var names []string
	known := map[string]*bulk.Schedule{}
	for i := range all {
		names, known[all[i].Name] = append(names, all[i].Name), &all[i]
	}
	names, next := r.cut(names)
	for _, name := range names {
		row := r.schedule(known[name])
		row.Acts = r.acts(name, map[bool]string{false: "pause_schedule", true: "resume_schedule"}[row.Paused], "run_schedule")
		list.Schedules = append(list.Schedules, row)
	}
	list.Pages = r.page(next)
	return r.t("bulk.schedules"), list, nil
}

func (l *uiLanguage) schedule(s *bulk.Schedule) scheduleRow {
	row := scheduleRow{
		Name: s.Name, To: schedulePath(s.Name), Cron: s.Cron, Zone: s.TimeZone, Tenant: s.Spec.Tenant, Callee: callee(&s.Spec), Paused: s.Paused,
		Next: l.ago(s.NextRunAt), Last: l.ago(s.LastRunAt), Error: s.LastError,
	}
	if s.Paused {
		row.Next = "–"
	}
	return row
}

func (d *Dashboard) schedulePage(r *request) (string, any, error) {
	if d.options.Bulk == nil {
		return "", nil, bulk.ErrNoSchedule
	}
	s, err := d.options.Bulk.Schedule(r.Context(), r.get("name"))
	if err != nil {
		return "", nil, err
	}
	page := schedulePage{scheduleRow: r.schedule(&s), Sub: bulkSub(r), LastAction: s.LastAction}
	if s.LastAction != "" {
		page.LastTo = actionPath(s.LastAction)
	}
	page.Facts = []fact{
		{r.t("bulk.tenant"), s.Spec.Tenant}, {r.t("bulk.callee"), callee(&s.Spec)}, {r.t("schedule.cron"), s.Cron}, {r.t("schedule.zone"), s.TimeZone},
		{r.t("schedule.next"), clock(s.NextRunAt)}, {r.t("schedule.last"), clock(s.LastRunAt)}, {r.t("schedule.skipped"), clock(s.LastSkippedAt)},
		{r.t("schedule.overlap"), r.word("overlap.", string(s.Overlap))}, {r.t("schedule.jobs"), number(int64(len(s.Jobs)))},
	}
	for _, job := range s.Jobs[:min(len(s.Jobs), maxJobs)] {
		page.Jobs = append(page.Jobs, show(job))
	}
	if more := len(s.Jobs) - len(page.Jobs); more > 0 {
		page.More = r.t("text.cut", number(int64(more)))
	}
	if s.Paused {
		page.Acts = r.acts(s.Name, "resume_schedule", "run_schedule", "remove_schedule")
	} else {
		page.Acts = r.acts(s.Name, "pause_schedule", "run_schedule", "remove_schedule")
	}
	return s.Name, page, nil
}

func askSchedule(d *Dashboard, r *request, name, _ string) (string, error) {
	s, err := d.options.Bulk.Schedule(r.Context(), name)
	return r.t("ask."+r.get("do"), name, s.Spec.Tenant, number(int64(len(s.Jobs)))), err
}

func runSchedule(ctx context.Context, d *Dashboard, name, _ string) error {
	_, err := d.options.Bulk.RunNow(ctx, name)
	return err
}

func removeSchedule(ctx context.Context, d *Dashboard, name, _ string) error {
	return d.options.Bulk.RemoveSchedule(ctx, name)
}

func ofSchedule(change func(Bulk, context.Context, string) (bulk.Schedule, error)) func(context.Context, *Dashboard, string, string) error {
	return func(ctx context.Context, d *Dashboard, name, _ string) error {
		_, err := change(d.options.Bulk, ctx, name)
		return err
	}
}
