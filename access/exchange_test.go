package access_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

// several are instances that share one store and one exchange.
type several struct {
	t        *testing.T
	exchange storetest.Exchange
	all      []*access.Accounts
	ends     []*storetest.Instance
}

// openSeveral starts instances, until the test ends.
func openSeveral(t *testing.T, n int, quotas ...access.Quota) *several {
	s := &several{t: t}
	store := &storetest.Memory{}
	for range n {
		end := s.exchange.Instance()
		accounts, err := access.New(store, adminSecret, access.Options{Logger: slog.New(slog.DiscardHandler), Exchange: end})
		if err != nil {
			t.Fatal(err)
		}
		if err := accounts.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := accounts.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		s.all, s.ends = append(s.all, accounts), append(s.ends, end)
	}
	setQuotas(t, s.all[0], quotas...)
	time.Sleep(followed)
	return s
}

// load is what clients of an instance do: they send at most so much of the rate, and as fast as they can for math.Inf(1).
type load []float64

// more waits until the next request of many clients who do not know of each other and send so many in a second, and reports whether
// that is before the end.
func more(perSecond float64, ends time.Time) bool {
	time.Sleep(min(time.Duration(rand.ExpFloat64()/perSecond*float64(time.Second)), time.Until(ends)))
	return time.Now().Before(ends)
}

// connections is how many connections clients have to each instance, and size what they send in a request, or have ready in an answer.
const (
	connections = 4
	size        = 16_000
)

// requests sends requests of a tenant to an instance, at most three times the rate.
func (s *several) requests(i int, o offered, load float64, ends time.Time, passed *atomic.Int64) {
	p := &access.Principal{Name: fmt.Sprint("till ", i), Tenants: []string{"acme"}}
	for more(o.rate*min(load, 3.0/connections), ends) {
		if s.all[i].Request(p) == nil {
			passed.Add(1)
		}
	}
}

// bytes sends bytes to an instance, or gets them.
func (s *several) bytes(i int, o offered, load float64, ends time.Time, passed *atomic.Int64) {
	for more(o.rate*load/size, ends) {
		m, bytes := s.all[i].Meter(&access.Principal{Name: "till"}, o.key, "app"), int64(size)
		if o.key == access.ConsumerRate {
			if most := m.Allowance(); load > 1 || most == 0 {
				bytes = most
			}
		}
		passed.Add(bytes)
		time.Sleep(min(m.Spend(bytes)+time.Millisecond, time.Until(ends)))
	}
}

// offered is a rate, and how clients use it.
type offered struct {
	key  string // of the quota
	rate float64
}

func (o *offered) quota() access.Quota {
	q := access.Quota{User: "till", Rates: map[string]float64{o.key: o.rate}}
	if o.key == access.RequestRate {
		q.User, q.Tenant = "", "acme"
	}
	return q
}

// offer has clients of the instances use a rate, and returns how much of it passed at each, as parts of the whole.
func (s *several) offer(o offered, loads load, lasts time.Duration) (parts []float64, sum float64) {
	passed := make([]atomic.Int64, len(loads))
	var work sync.WaitGroup
	ends := time.Now().Add(lasts)
	for i, load := range loads {
		client := s.requests
		if o.key != access.RequestRate {
			client = s.bytes
		}
		for range connections {
			if load > 0 {
				work.Go(func() { client(i, o, load/connections, ends, &passed[i]) })
			}
		}
	}
	work.Wait()
	for i := range passed {
		part := float64(passed[i].Load()) / (o.rate * lasts.Seconds())
		parts, sum = append(parts, part), sum+part
	}
	return parts, sum
}

// Clients of several instances get the rate of their quota together, within 5 %, whatever they do: at all instances, at one, at
// some of them much and at others little, and after they have moved. Clients of an instance who want less than an even part get nearly what they want.
func TestRatesHoldOverInstances(t *testing.T) {
	all := math.Inf(1)
	for _, phases := range [][]load{
		{{all, all, all}, {all, 0, 0}, {0, all, 0}, {0, all, all}, {all, all, all}},
		{{all, 0.2, 0}, {0.2, all, 0.1}, {0.3, 0.3, all}},
		{{all, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, {0, 0, 0, 0, 0, 0, 0, 0, all}, {all, all, all, all, all, all, all, all, all}},
	} {
		for _, o := range []offered{{access.RequestRate, 50}, {access.RequestRate, 200}, {access.ProducerRate, 1e6}, {access.ConsumerRate, 1e6}} {
			synctest.Test(t, func(t *testing.T) {
				s := openSeveral(t, len(phases[0]), o.quota())
				for _, loads := range phases {
					parts, sum := s.offer(o, loads, time.Minute)
					if sum < 0.95 || sum > 1.05 {
						t.Errorf("%s of %v, used as %v: %+.1f %% in a minute: %.3f", o.key, o.rate, loads, 100*(sum-1), parts)
					}
					for i, load := range loads {
						if load < 1 && parts[i] < load*0.8 {
							t.Errorf("%s of %v, used as %v: who wants %v has %.3f", o.key, o.rate, loads, load, parts[i])
						}
					}
				}
			})
		}
	}
}

// Whatever clients want of a rate at up to nine instances, now and then, all of it is used while some of them want more than they get.
func TestInstancesAgreeOnChangingDemand(t *testing.T) {
	defer rapidtest.Checks(5, 100)()
	all := math.Inf(1)
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(r, "instances")
		o := offered{rapid.SampledFrom([]string{access.RequestRate, access.ProducerRate, access.ConsumerRate}).Draw(r, "quota"), 1e6}
		if o.key == access.RequestRate {
			o.rate = 200
		}
		var phases []load
		for range 3 {
			of := rapid.SliceOfN(rapid.SampledFrom([]float64{all, 0, 0.05, 0.1, 0.3, all}), n, n).Draw(r, "loads")
			of[rapid.IntRange(0, n-1).Draw(r, "greedy")] = all
			phases = append(phases, of)
		}
		synctest.Test(t, func(t *testing.T) {
			s := openSeveral(t, n, o.quota())
			for _, of := range phases {
				s.offer(o, of, 3*time.Second) // the phase before fades
				if parts, sum := s.offer(o, of, 40*time.Second); sum < 0.95 || sum > 1.05 {
					r.Errorf("%s, used as %v: %+.1f %%: %.3f", o.key, of, 100*(sum-1), parts)
				}
			}
		})
	})
}

// An instance that stops, or is not heard of any more, has no part soon. One that hears nobody has an even part, as has each if none
// hears another. When they hear each other again all is as it was.
func TestInstancesThatAreLost(t *testing.T) {
	for _, o := range []offered{{access.RequestRate, 100}, {access.ProducerRate, 1e6}} {
		synctest.Test(t, func(t *testing.T) {
			all := math.Inf(1)
			s := openSeveral(t, 3, o.quota())
			near := func(when string, loads load, want ...float64) {
				t.Helper()
				s.offer(o, loads, access.Told+time.Second)
				parts, _ := s.offer(o, loads, 30*time.Second)
				for i, part := range parts {
					if math.Abs(part-want[i]) > 0.03 {
						t.Errorf("%s: %s: the parts are %.3f, want %.3f", o.key, when, parts, want)
						break
					}
				}
			}
			const third = 1.0 / 3
			near("all hear each other", load{all, all, all}, third, third, third)
			s.ends[0].Fail(errors.New("away"))
			near("one hears nobody", load{all, all, all}, third, 0.5, 0.5)
			s.ends[1].Fail(errors.New("away"))
			s.ends[2].Fail(errors.New("away"))
			near("none hears another", load{all, all, all}, third, third, third)
			near("none hears another, one is used", load{0, all, 0}, 0, third, 0)
			for _, end := range s.ends {
				end.Fail(nil)
			}
			near("all hear each other again", load{0, all, all}, 0, 0.5, 0.5)
			s.offer(o, load{all, all, all}, 10*time.Second)
			if err := s.all[2].Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if parts, _ := s.offer(o, load{all, all, 0}, 10*time.Second); parts[0]+parts[1] < 0.95 {
				t.Errorf("%s: when one has stopped, the others have %.3f", o.key, parts)
			}
		})
	}
}

// Clients that come to an instance beside greedy ones elsewhere soon have half of the rate, and their first requests pass.
func TestANewcomerStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, o := math.Inf(1), offered{access.RequestRate, 50}
		s := openSeveral(t, 2, o.quota())
		s.offer(o, load{all, 0}, time.Minute)
		var work sync.WaitGroup
		work.Go(func() { s.offer(o, load{all, 0}, 20*time.Second) })
		time.Sleep(10 * time.Second)
		for i := range 5 {
			if err := s.all[1].Request(&access.Principal{Name: "new", Tenants: []string{"acme"}}); err != nil {
				t.Errorf("request %d of a newcomer: %v", i+1, err)
			}
		}
		if parts, _ := s.offer(o, load{0, all}, 5*time.Second); parts[1] < 0.4 || parts[1] > 0.6 {
			t.Errorf("the newcomer has %.3f in 5 seconds", parts[1])
		}
		work.Wait()
	})
}

// Instances trade while something is limited, a bounded number of times, and not at all otherwise. More rates than they tell each
// other of are divided evenly.
func TestTradesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, seconds = 700, 20
		s := openSeveral(t, 2, produces("", access.DefaultEntity, 10_000))
		used := func(instances ...int) (bytes int64) {
			var total atomic.Int64
			var work sync.WaitGroup
			ends := time.Now().Add(seconds * time.Second)
			for _, i := range instances {
				for client := range clients {
					work.Go(func() {
						for time.Now().Before(ends) {
							m := s.all[i].Meter(&access.Principal{Name: "till"}, access.ProducerRate, fmt.Sprint(client, "\xff"))
							total.Add(1000)
							time.Sleep(m.Spend(1000) + time.Millisecond)
						}
					})
				}
			}
			work.Wait()
			return total.Load()
		}
		const want = clients * seconds * 10_000
		for round, instances := range [][]int{{0, 1}, {0, 1}, {1}} {
			before := s.exchange.Trades()
			bytes := used(instances...)
			if most := s.exchange.Trades() - before; most > 2*seconds*3 {
				t.Errorf("round %d: %d trades in %d s", round, most, seconds)
			}
			least := 0.95 * want
			if len(instances) == 1 {
				least = 0.8 * want // 500 of 700 clients have all of their rate, the others half of it
			}
			if float64(bytes) > 1.05*want && round > 0 || float64(bytes) < least {
				t.Errorf("round %d: %.3f of the rates of all clients", round, float64(bytes)/want)
			}
		}
		if most := s.exchange.Largest(); most > 32<<10 || most < 5000 {
			t.Errorf("the most that was told has %d bytes", most)
		}
		time.Sleep(time.Minute)
		before := s.exchange.Trades()
		time.Sleep(time.Hour)
		if after := s.exchange.Trades(); after != before {
			t.Errorf("%d trades in an hour without requests", after-before)
		}
	})
}
