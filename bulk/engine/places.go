package engine

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// leastPool is the number of workers from which a part is kept for short attempts.
	leastPool = 5
	// quietPart is the part that is still kept when none came for quietAfter.
	quietPart  = 0.4
	quietAfter = time.Minute
	// scarcePart and placePart bound the long attempts of one tenant, in times what other
	// tenants' long attempts can still have: of few workers a tenant may have most, and of
	// many places none needs more than a part.
	scarcePart = 4
	placePart  = 0.25
)

// places is how many more long attempts of one type may be held, and how many each tenant
// holds and may hold besides.
type places struct {
	costs *costs
	part  float64
	free  *int64
	held  map[string]int64
	left  map[string]*int64
}

// measure returns what the engine has measured of holders: what an attempt costs, and how many
// more may be held by those whose attempts are long, or were never measured, and against targets.
// So the workers of a type, or the places of its webhooks, are never all held by attempts of which
// it is not known that they end soon, and a tenant that comes starts within about a second.
func (e *Engine) measure(b *bulk.Backlog, free *bulk.Free) {
	now := time.Now()
	types := map[string]*places{}
	placesOf := func(name string) *places {
		if types[name] == nil {
			types[name] = e.placesOf(name, max(e.workersOf(name), b.Types[name].Workers), now)
		}
		return types[name]
	}
	targets, tenants := map[string]int64{}, map[string]map[string]bool{}
	for of, held := range b.Held {
		targets[of.Target] += held
		if tenants[of.Type] == nil {
			tenants[of.Type] = map[string]bool{}
		}
		tenants[of.Type][of.Tenant] = true
		if p := placesOf(of.Type); p.costs.estimate(of, now).long {
			p.held[of.Tenant] += held
			if p.free != nil {
				*p.free -= held
			}
		}
	}
	free.Places = map[string]*int64{}
	var changed []bulk.Holder
	for name := range b.Types {
		p := placesOf(name)
		free.Places[name] = p.free
		changed = append(changed, p.costs.shorter()...)
	}
	b.Queue.ClassifyNew(changed, func(of bulk.Holder) bool { return placesOf(of.Type).costs.estimate(of, now).long })
	for name, pool := range e.pools {
		pool.share(len(tenants[name]) > 1 || b.Queue.Others(name, tenants[name]))
	}
	limits, found := *e.targets.Load(), map[string]int64{}
	free.Measured = func(of bulk.Holder) bulk.Measured {
		m := placesOf(of.Type).measure(of, now)
		if of.Type == bulk.WebhookType {
			left, known := found[of.Target]
			if !known {
				left = e.loads.left(of.Target, targets[of.Target], limits[of.Target], now)
				found[of.Target] = left
			}
			m.Target = left
		}
		return m
	}
}

// placesOf returns how many long attempts of a type may be held by all tenants: all but the
// reserve.
func (e *Engine) placesOf(name string, workers int64, now time.Time) *places {
	p := &places{costs: e.costsOf(name), part: scarcePart, held: map[string]int64{}, left: map[string]*int64{}}
	if name == bulk.WebhookType {
		p.part = placePart
	}
	reserve := max(0, e.config.For(name).Reserve)
	if workers < leastPool || reserve == 0 {
		return p
	}
	if !p.costs.shortSince(now.Add(-quietAfter)) {
		reserve *= quietPart
	}
	free := workers - int64(math.Ceil(float64(workers)*reserve))
	p.free = &free
	return p
}

// measure returns the cost of a holder's attempts, and the bounds of those that may be long.
func (p *places) measure(of bulk.Holder, now time.Time) bulk.Measured {
	e := p.costs.estimate(of, now)
	m := bulk.Measured{Cost: e.cost, Target: bulk.NoLimit}
	if p.free != nil && e.long {
		m.HeldBounds = bulk.HeldBounds{Free: p.free, Tenant: p.tenant(of.Tenant)}
	}
	return m
}

// tenant returns how many more long attempts a tenant may hold: it may have the first, and
// beyond it part times what is free for others (the dynamic thresholds of Choudhury and
// Hahne, 1998).
func (p *places) tenant(name string) *int64 {
	if p.left[name] == nil {
		held := p.held[name]
		n := int64((p.part*float64(*p.free) - float64(held)) / (1 + p.part))
		if held == 0 {
			n = max(n, 1)
		}
		p.left[name] = &n
	}
	return p.left[name]
}

// holderOf returns who holds the jobs of an action.
func holderOf(spec *bulk.Spec) bulk.Holder {
	return bulk.Holder{Tenant: spec.Tenant, Type: spec.Type, Target: spec.Callee()}
}

func (e *Engine) costsOf(name string) *costs {
	known, ok := e.costs.Load(name)
	if !ok {
		known, _ = e.costs.LoadOrStore(name, newCosts(time.Now()))
	}
	return known.(*costs)
}

// workersOf returns the number of workers of a type: those of this process, and the remote
// ones that it knows.
func (e *Engine) workersOf(name string) int64 {
	workers := e.lent.workers(name)
	if p := e.pools[name]; p != nil {
		workers += int64(p.size())
	}
	return workers
}

// Workforce is who runs the jobs of one type, and what there is to do.
type Workforce struct {
	Type string
	// Workers counts the workers that are known: those of this process (Here), and the jobs that workers of other processes
	// have or wait for.
	Workers, Here int64
	// Waiting, Ready and InFlight count jobs.
	Waiting, Ready, InFlight int64
	// Idle reports whether jobs are ready and no worker asks for them.
	Idle bool
}

// Workforces returns the workforce of each type that has jobs, or workers of this process, by type.
func (e *Engine) Workforces(ctx context.Context) (all []Workforce, err error) {
	err = e.store.Fetch(ctx, func(b *bulk.Backlog) {
		for name, state := range b.Types {
			all = append(all, Workforce{
				Type: name, Workers: max(e.workersOf(name), state.Workers), Waiting: state.Waiting, Ready: state.Ready, InFlight: state.InFlight, Idle: state.Idle,
			})
		}
		for name := range e.pools {
			if _, has := b.Types[name]; !has {
				all = append(all, Workforce{Type: name, Workers: e.workersOf(name)})
			}
		}
	})
	for i := range all {
		if p := e.pools[all[i].Type]; p != nil {
			all[i].Here = int64(p.size())
		}
	}
	slices.SortFunc(all, func(x, y Workforce) int { return strings.Compare(x.Type, y.Type) })
	return all, err
}
