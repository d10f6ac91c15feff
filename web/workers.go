package web

import (
	"net/url"

	"github.com/sluice-project/sluice/bulk/engine"
)

type workerRow struct {
	engine.Workforce
	To string
	// Rate is how many attempts end in a second.
	Rate string
}

type workerList struct {
	Off   bool
	Sub   []link
	Types []workerRow
	Pages pager
}

// workers shows who runs the jobs of each type.
func (d *Dashboard) workers(r *request) (string, any, error) {
	list := workerList{Off: d.options.Bulk == nil, Sub: bulkSub(r)}
	if list.Off {
		return r.t("bulk.workers"), list, nil
	}
	all, err := d.options.Bulk.Workforces(r.Context())
	if err != nil {
		return "", nil, err
	}
	var names []string
	forces := map[string]*engine.Workforce{}
	for i := range all {
		names, forces[all[i].Type] = append(names, all[i].Type), &all[i]
	}
	now, before := d.history.minute()
	names, next := r.cut(names)
	for _, name := range names {
		list.Types = append(list.Types, workerRow{*forces[name], "bulk?" + url.Values{"type": {name}}.Encode(),
			decimal(rate(now, before, of("bulk_action_attempts_total", name)))})
	}
	list.Pages = r.page(next)
	return r.t("bulk.workers"), list, nil
}
