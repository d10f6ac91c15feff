package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/bulk"
)

// quotasTime bounds how long the metrics wait for the store's counts; without them the metrics have no quotas.
const quotasTime = time.Second

// quotas are the metrics of what tenants have stored, of those that have a quota: the first maxLabels of them by name. They are asked of the
// store for each collection.
type quotas struct {
	store        bulk.Store
	config       bulk.Config
	stored, most *prometheus.Desc
}

func newQuotas(store bulk.Store, config bulk.Config) quotas {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("bulk_tenant_"+name, help, []string{"tenant", "of"}, nil)
	}
	return quotas{
		store, config,
		desc("stored", "What counts in a quota of a tenant. All instances on one Redis show the same: max by (tenant, of)."),
		desc("stored_max", "The quota of a tenant, for those that have one."),
	}
}

// collect sends the quotas of the tenants that have their own settings, or are known otherwise.
func (q *quotas) collect(to chan<- prometheus.Metric, known []string) {
	ctx, cancel := context.WithTimeout(context.Background(), quotasTime)
	defer cancel()
	settings, err := q.store.Settings(ctx)
	if err != nil {
		return
	}
	most := map[string]bulk.Stored{}
	for _, name := range slices.AppendSeq(known, maps.Keys(settings.Tenants)) {
		tenant := settings.Tenants[name]
		if of := q.config.QuotaOf(&tenant); of != (bulk.Stored{}) {
			most[name] = of
		}
	}
	names := slices.Sorted(maps.Keys(most))
	names = names[:min(len(names), maxLabels)]
	if len(names) == 0 {
		return
	}
	counts, _ := q.store.StoredOf(ctx, names) // with an error, those of the part of the store that answers
	for _, name := range names {
		stored, has := counts[name]
		if !has {
			continue
		}
		for _, of := range []struct {
			label        string
			stored, most int64
		}{
			{"actions", stored.Actions, most[name].Actions}, {"jobs", stored.Jobs, most[name].Jobs}, {"bytes", stored.Bytes, most[name].Bytes},
		} {
			if of.most > 0 {
				to <- prometheus.MustNewConstMetric(q.stored, prometheus.GaugeValue, float64(of.stored), name, of.label)
				to <- prometheus.MustNewConstMetric(q.most, prometheus.GaugeValue, float64(of.most), name, of.label)
			}
		}
	}
}
