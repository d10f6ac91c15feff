package engine

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// shop is a model of an upstream and its visitors: each visit makes some requests, with a pause
// before each, and leaves. Requests wait for one of the upstream's workers.
type shop struct {
	random  *rand.Rand
	workers func(at float64) int
	takes   float64 // mean, of a request
	pause   float64 // mean, between two requests of a visitor
	visit   float64 // mean number of requests

	now      float64
	events   shopEvents
	queue    []float64 // when the requests began that wait for a worker
	busy     int
	inside   int64
	capacity float64
	window   Upstream
	delays   []float64
	seconds  []shopSecond
}

// shopSecond is a second that a shop has recorded, with how many delays there were then.
type shopSecond struct {
	capacity, holds float64
	delays          int
}

type shopEvent struct {
	at, began float64 // began is of a request that ends; -1: a visitor asks
}

type shopEvents []shopEvent

func (e shopEvents) Len() int           { return len(e) }
func (e shopEvents) Less(i, j int) bool { return e[i].at < e[j].at }
func (e shopEvents) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *shopEvents) Push(x any)        { *e = append(*e, x.(shopEvent)) }
func (e *shopEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *shop) after(d float64, began float64) { heap.Push(&s.events, shopEvent{s.now + d, began}) }

// fill lets in visitors as long as there are fewer than the capacity.
func (s *shop) fill() {
	for float64(s.inside) < s.capacity {
		s.inside++
		s.after(s.random.ExpFloat64()*s.pause, -1)
	}
}

func (s *shop) serve() {
	for s.busy < s.workers(s.now) && len(s.queue) > 0 {
		s.busy++
		s.after(s.takes*(0.5+s.random.Float64()), s.queue[0])
		s.queue = s.queue[1:]
	}
}

// run lets time pass until an end.
func (s *shop) run(until float64) {
	s.fill()
	for len(s.events) > 0 && s.events[0].at < until {
		e := heap.Pop(&s.events).(shopEvent)
		s.now = e.at
		if e.began < 0 {
			s.window.Started++
			s.window.InFlight++
			s.queue = append(s.queue, s.now)
			s.serve()
			continue
		}
		s.busy--
		s.window.InFlight--
		s.window.Answered++
		s.window.Took += time.Duration((s.now - e.began) * 1e9)
		s.delays = append(s.delays, s.now-e.began)
		if s.random.Float64() < 1/s.visit {
			s.inside--
			s.fill()
		} else {
			s.after(s.random.ExpFloat64()*s.pause, -1)
		}
		s.serve()
	}
	s.now = until
	s.serve()
}

// span is what happened in some seconds.
type span struct {
	low, mean, high float64 // of the capacity
	perSecond       float64 // requests answered
	p95             float64 // of how long they took, in seconds
}

// within runs a shop until an end, with the capacity that is found in each second.
func (s *shop) within(a *autoCapacity, until float64) span {
	from, began := len(s.delays), s.now
	got := span{low: s.capacity, high: s.capacity}
	for s.now < until {
		s.run(s.now + 1)
		up := s.window
		up.Length = time.Second
		s.window = Upstream{InFlight: up.InFlight}
		s.capacity = math.Floor(a.observe(up, float64(s.inside), 1000, 10, 5000))
		got.low, got.high = min(got.low, s.capacity), max(got.high, s.capacity)
		s.seconds = append(s.seconds, shopSecond{s.capacity, s.holds(), len(s.delays)})
		got.mean += s.capacity / (until - began)
	}
	delays := slices.Sorted(slices.Values(s.delays[from:]))
	got.perSecond, got.p95 = float64(len(delays))/(s.now-began), delays[len(delays)*95/100]
	return got
}

// halvingShop has a hundred workers, and half as many from the fifth minute to the tenth.
func halvingShop(takes, pause, visit float64, seed uint64) *shop {
	const workers = 100
	return &shop{
		takes: takes, pause: pause, visit: visit, capacity: 10, random: rand.New(rand.NewPCG(seed, 2)),
		workers: func(at float64) int {
			if at > 300 && at < 600 {
				return workers / 2
			}
			return workers
		},
	}
}

// serves returns how many requests the shop can answer in a second, and holds how many visitors
// make as many.
func (s *shop) serves() float64 { return float64(s.workers(s.now-1)) / s.takes }

func (s *shop) holds() float64 { return s.serves() * (s.takes + s.pause) }

// TestAutoFollowsAnUpstream uses upstreams that halve and recover. After 30 s their requests take
// no more than twice as long as without load, they are used to nine tenths, and the capacity
// stays near its mean.
func TestAutoFollowsAnUpstream(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("SLUICE_LONG") != "" {
		seeds = 4
	}
	for _, test := range []struct{ takes, pause, visit, swing float64 }{{0.1, 1, 10, 0.15}, {0.1, 4, 5, 0.25}} {
		for seed := range seeds {
			s := halvingShop(test.takes, test.pause, test.visit, seed)
			a := &autoCapacity{capacity: s.capacity}
			for _, span := range []struct {
				until            float64
				judged, swinging bool
			}{{100, false, false}, {300, true, true}, {330, false, false}, {400, true, false}, {600, true, true}, {660, false, false}, {900, true, true}} {
				got := s.within(a, span.until)
				const unloaded = 1.45 // p95 of a request, in times of the mean
				if span.judged && (got.p95 > 2*unloaded*test.takes || got.perSecond < 0.9*s.serves()) {
					t.Errorf("seed %d, until %g: p95 %g s, %.0f requests/s of %.0f", seed, span.until, got.p95, got.perSecond, s.serves())
				}
				if span.swinging && (got.low < (1-test.swing)*got.mean || got.high > (1+test.swing)*got.mean) {
					t.Errorf("seed %d, until %g: a capacity from %g to %g, around %g", seed, span.until, got.low, got.high, got.mean)
				}
			}
			if *updatePlot && test.pause == 1 && seed == 0 {
				if err := os.WriteFile("../docs/room/auto.svg", []byte(drawAuto(s.plot(0.145))), 0o644); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
