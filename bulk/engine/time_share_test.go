package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// neighbour is a tenant beside the one whose rate is measured.
type neighbour struct {
	after time.Duration // when it comes, after the measured tenant; negative: before it
	takes func(at time.Duration) time.Duration
}

const (
	quick   = 50 * time.Millisecond
	hangs   = 30 * time.Second
	settles = 2 * time.Second // before it rates are not measured
	measure = 40 * time.Second
)

func always(d time.Duration) func(time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return d }
}

func many(n int, of neighbour) (all []neighbour) {
	for range n {
		all = append(all, of)
	}
	return all
}

// crowds are the neighbours that must not slow a tenant down.
var crowds = map[string][]neighbour{
	"one that hangs":                 {{0, always(hangs)}},
	"one that hangs and came before": {{-5 * time.Second, always(hangs)}},
	"one that begins to hang": {{0, func(at time.Duration) time.Duration {
		return map[bool]time.Duration{true: quick, false: hangs}[at < 10*time.Second]
	}}},
	"ten that hang and come later":     many(10, neighbour{settles, always(hangs)}),
	"one of a second a job":            {{0, always(time.Second)}},
	"one of a second that came before": {{-5 * time.Second, always(time.Second)}},
	"ten of a second a job":            many(10, neighbour{settles, always(time.Second)}),
}

// perSecond counts the jobs of a tenant that end in each second after it comes.
type perSecond [int((settles + measure) / time.Second)]int

// rate is that of the seconds that are measured.
func (p perSecond) rate() float64 {
	sum := 0
	for _, n := range p[settles/time.Second:] {
		sum += n
	}
	return float64(sum) / measure.Seconds()
}

// endedBeside returns how many jobs of a tenant end in each second, beside others.
func endedBeside(t *testing.T, crowd []neighbour, spec bulk.Spec) (ended perSecond) {
	var mu sync.Mutex
	var began time.Time
	takes := map[string]func(time.Duration) time.Duration{}
	handle := func(ctx context.Context, job *bulk.Job) ([]byte, error) {
		mu.Lock()
		d := takes[job.Spec.Tenant](time.Since(began))
		mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		if at := time.Since(began); job.Spec.Tenant == "b" && at < settles+measure {
			ended[at/time.Second]++
		}
		return nil, nil
	}
	mux := handled(handle)
	mux.HandleFunc(bulk.WebhookType, handle)
	config := bulk.Config{RequestsPerSecond: -1, ShutdownGrace: -1, JobTimeout: time.Minute}
	inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
		enter := func(tenant string, takesTime func(time.Duration) time.Duration, jobs int) {
			mu.Lock()
			takes[tenant] = takesTime
			mu.Unlock()
			s := spec
			s.Tenant = tenant
			if s.Type == "" {
				s.Target = &bulk.Target{Name: tenant, URL: "http://" + tenant + ".example/"}
			}
			r.submit(s, jobs)
		}
		earliest := time.Duration(0)
		for _, n := range crowd {
			earliest = min(earliest, n.after)
		}
		began = time.Now().Add(-earliest)
		var group sync.WaitGroup
		for i, n := range crowd {
			group.Go(func() {
				pass(time.Until(began.Add(n.after)))
				enter(fmt.Sprint("a", i), n.takes, 10_000)
			})
		}
		pass(time.Until(began))
		if err := r.Set(context.Background(), bulk.SettingsChange{Name: "b", Target: &bulk.TargetLimits{Concurrency: 10}}); err != nil {
			t.Error(err)
		}
		enter("b", always(quick), 10_000)
		pass(time.Until(began.Add(settles + measure + time.Second)))
		group.Wait()
	})
	return ended
}

// TestTimeIsShared: a tenant keeps its rate beside others whose attempts take long, whoever
// came first.
func TestTimeIsShared(t *testing.T) {
	plot := newSharePlot(t)
	for name, c := range map[string]struct {
		spec bulk.Spec
		keep float64
	}{"workers": {bulk.Spec{Type: "send"}, 0.5}, "webhooks": {bulk.Spec{}, 0.9}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := endedBeside(t, nil, c.spec)
			plot.add(name, "nobody", ended)
			alone := ended.rate()
			for crowd, of := range crowds {
				t.Run(crowd, func(t *testing.T) {
					t.Parallel()
					ended := endedBeside(t, of, c.spec)
					plot.add(name, crowd, ended)
					if beside := ended.rate(); beside < c.keep*alone {
						t.Errorf("%.2f jobs a second, alone %.2f: want %.2f of that", beside, alone, c.keep)
					} else {
						t.Logf("%.2f jobs a second, alone %.2f", beside, alone)
					}
				})
			}
		})
	}
}
