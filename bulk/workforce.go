package bulk

import (
	"context"
	"slices"
	"strings"
)

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
	err = e.store.Fetch(ctx, func(b *Backlog) {
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
