package share

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is a window as a map of offsets.
type naive struct {
	limits     Limits
	start, end int64
	by         map[int64]*entry
}

type entry struct {
	state  state
	count  int16
	member string
	until  time.Time
}

func (n *naive) records() (count int) {
	for _, e := range n.by {
		if e.state != absent {
			count++
		}
	}
	return count
}

func (n *naive) wanted() (int64, bool) {
	for at := n.start; at < n.end; at++ {
		if n.by[at].state == available {
			return at, true
		}
	}
	return n.end, n.records() < n.limits.Records
}

// fill has batches that begin at the wanted offset or later.
func (n *naive) fill(from, next int64, batches []Span) {
	for at := from; at < next; at++ {
		has := slices.ContainsFunc(batches, func(b Span) bool { return b.First <= at && at <= b.Last })
		switch e := n.by[at]; {
		case at < n.end:
			if !has && (e.state == available || e.state == waiting) {
				*e = entry{state: absent}
			}
		case !has:
			n.by[at], n.end = &entry{state: absent}, at+1
		case n.records() == n.limits.Records:
			n.clean()
			return
		default:
			n.by[at], n.end = &entry{}, at+1
		}
	}
	n.clean()
}

func (n *naive) acquire(now time.Time, member string, batches []Span, most int, strict bool) (got map[int64]int16) {
	got = map[int64]int16{}
	for _, b := range batches {
		if len(got) >= most {
			break
		}
		for at := b.First; at <= b.Last && !(strict && len(got) == most); at++ {
			if e := n.by[at]; e != nil && e.state == available {
				e.state, e.count, e.member, e.until = acquired, e.count+1, member, now.Add(n.limits.Lock)
				got[at] = e.count
			}
		}
	}
	return got
}

func (n *naive) release(now time.Time, e *entry) {
	switch *e = (entry{state: available, count: e.count}); {
	case e.count >= n.limits.Deliveries:
		n.fail(e, exhausted)
	case n.limits.Backoff > 0: // 4 s, and 6 s, the most, after the second delivery
		e.state, e.until = waiting, now.Add([]time.Duration{4 * time.Second, 6 * time.Second}[e.count-1])
	}
}

func (n *naive) fail(e *entry, why state) {
	if *e = (entry{state: why, count: e.count}); !n.limits.DeadLetters {
		*e = entry{state: settled}
	}
}

func (n *naive) expire(now time.Time) {
	for _, e := range n.by {
		if e.state == acquired && !e.until.After(now) {
			n.release(e.until, e)
		}
		if e.state == waiting && !e.until.After(now) {
			*e = entry{count: e.count}
		}
	}
	n.clean()
}

func (n *naive) acknowledge(now time.Time, member string, a Acknowledgement) bool {
	n.expire(now)
	for at := a.First; at <= a.Last; at++ {
		if e := n.by[at]; e == nil || e.state != acquired || e.member != member {
			return false
		}
	}
	for at := a.First; at <= a.Last; at++ {
		kind := a.Kinds[0]
		if len(a.Kinds) > 1 {
			kind = a.Kinds[at-a.First]
		}
		switch e := n.by[at]; kind {
		case Gap:
			*e = entry{state: absent}
		case Accept:
			*e = entry{state: settled}
		case Reject:
			n.fail(e, rejected)
		case Release:
			n.release(now, e)
		case Renew:
			e.until = now.Add(n.limits.Lock)
		}
	}
	n.clean()
	return true
}

// held returns the offsets that are acquired.
func (n *naive) held() (offsets []int64) {
	for at := n.start; at < n.end; at++ {
		if n.by[at].state == acquired {
			offsets = append(offsets, at)
		}
	}
	return offsets
}

// restart is what is left of the locks when the window is read from the store.
func (n *naive) restart(now time.Time) {
	for _, e := range n.by {
		if e.state == acquired {
			n.release(now, e)
		}
	}
	n.clean()
}

// bury settles the dead records up to an offset.
func (n *naive) bury(last int64) {
	for at, e := range n.by {
		if at <= last && (e.state == rejected || e.state == exhausted) {
			*e = entry{state: settled}
		}
	}
	n.clean()
}

func (n *naive) clip(start int64) {
	for ; n.start < start; n.start++ {
		delete(n.by, n.start)
	}
	n.end = max(n.end, n.start)
	n.clean()
}

func (n *naive) clean() {
	for n.start < n.end && n.by[n.start].state >= settled {
		delete(n.by, n.start)
		n.start++
	}
}

// draw returns batches of a log from an offset on, with holes, and the offset after what was read.
func draw(t *rapid.T, from int64) (batches []Span, next int64) {
	next = from
	for range rapid.IntRange(0, 4).Draw(t, "batches") {
		first := next + rapid.Int64Range(0, 2).Draw(t, "hole")
		b := Span{first, first + rapid.Int64Range(0, 4).Draw(t, "length")}
		batches, next = append(batches, b), b.Last+1
	}
	return batches, next + rapid.Int64Range(0, 2).Draw(t, "hidden")
}

// pair is a window and a map that does the same.
type pair struct {
	w   *Window
	n   *naive
	now time.Time
}

var members = rapid.SampledFrom([]string{"a", "b", "c"})

func (p *pair) fetch(t *rapid.T) {
	from, wanted := p.w.Wanted()
	if at, does := p.n.wanted(); at != from || does != wanted {
		t.Fatalf("wants %d, %v; want %d, %v", from, wanted, at, does)
	}
	if !wanted {
		return
	}
	batches, next := draw(t, from)
	p.w.Fill(from, next, batches)
	p.n.fill(from, next, batches)
	who, most, strict := members.Draw(t, "member"), rapid.IntRange(1, 6).Draw(t, "most"), rapid.Bool().Draw(t, "strict")
	got := map[int64]int16{}
	for _, d := range p.w.Acquire(p.now, who, batches, most, strict) {
		for at := d.First; at <= d.Last; at++ {
			got[at] = d.Count
		}
	}
	if want := p.n.acquire(p.now, who, batches, most, strict); !maps.Equal(got, want) {
		t.Fatalf("acquired %v; want %v", got, want)
	}
}

func (p *pair) acknowledge(t *rapid.T) {
	a := Acknowledgement{First: max(p.n.start+rapid.Int64Range(-1, 12).Draw(t, "first"), 0)}
	a.Last = a.First + rapid.Int64Range(0, 4).Draw(t, "more")
	for range rapid.SampledFrom([]int64{1, a.Last - a.First + 1}).Draw(t, "kinds") {
		a.Kinds = append(a.Kinds, Kind(rapid.IntRange(0, 4).Draw(t, "kind")))
	}
	who := members.Draw(t, "member")
	if held := p.n.held(); len(held) > 0 && rapid.Bool().Draw(t, "its own") {
		a.First = rapid.SampledFrom(held).Draw(t, "held")
		a.Last, a.Kinds, who = a.First, a.Kinds[:1], p.n.by[a.First].member
	}
	err := p.w.Acknowledge(p.now, who, []Acknowledgement{a})
	if done := p.n.acknowledge(p.now, who, a); done != (err == nil) || err != nil && !errors.Is(err, ErrState) {
		t.Fatalf("acknowledge %+v: %v; want it done: %v", a, err, done)
	}
}

func (p *pair) pass(t *rapid.T) {
	p.now = p.now.Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second)
	p.w.Expire(p.now)
	p.n.expire(p.now)
}

func (p *pair) leave(t *rapid.T) {
	who := members.Draw(t, "member")
	p.w.Release(p.now, who)
	for _, e := range p.n.by {
		if e.state == acquired && e.member == who {
			p.n.release(p.now, e)
		}
	}
	p.n.clean()
}

func (p *pair) trim(t *rapid.T) {
	start := p.n.start + rapid.Int64Range(0, 5).Draw(t, "start")
	p.w.Clip(start, max(start, p.n.end))
	p.n.clip(start)
}

func (p *pair) restart(t *rapid.T) {
	value, err := p.w.Encode(p.now, 7)
	if err != nil {
		t.Fatal(err)
	}
	var epoch int32
	if p.w, epoch, err = Decode(value, p.n.limits); err != nil || epoch != 7 {
		t.Fatalf("%s: epoch %d, %v", value, epoch, err)
	}
	p.n.restart(p.now)
}

// bury buries the first dead records, and those that are dead are those of the map.
func (p *pair) bury(t *rapid.T) {
	most, dead, last := rapid.IntRange(1, 12).Draw(t, "most"), p.w.Dead(12), int64(-1)
	for at := p.n.start; at < p.n.end; at++ {
		e := p.n.by[at]
		if e.state != rejected && e.state != exhausted {
			continue
		}
		if len(dead) > 0 && dead[0].Last < at {
			dead = dead[1:]
		}
		if len(dead) == 0 || at < dead[0].First || dead[0].Count != e.count || dead[0].Rejected != (e.state == rejected) {
			t.Fatalf("offset %d, %+v: dead are %+v", at, e, dead)
		}
	}
	for _, d := range p.w.Dead(most) {
		if most -= int(d.Last - d.First + 1); most < 0 {
			t.Fatalf("%d too many are dead", -most)
		}
		last = d.Last
		p.w.Bury(d.First, d.Last)
	}
	p.n.bury(last)
}

// alter turns the backoff and the dead letters on or off.
func (p *pair) alter(t *rapid.T) {
	limits := p.n.limits
	limits.Backoff = rapid.SampledFrom([]time.Duration{0, 4 * time.Second}).Draw(t, "backoff")
	limits.DeadLetters = rapid.Bool().Draw(t, "dead letters")
	p.w.SetLimits(limits)
	if p.n.limits = limits; !limits.DeadLetters {
		p.n.bury(p.n.end)
	}
}

// The window does what a map of offsets does, over restarts.
func TestWindowIsAMapOfOffsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Lock: 10 * time.Second, Records: 12, BackoffMax: 6 * time.Second,
			Deliveries: rapid.SampledFrom([]int16{2, 3}).Draw(t, "deliveries"), DeadLetters: rapid.Bool().Draw(t, "dead letters"),
		}
		p := &pair{w: New(5, limits), n: &naive{limits: limits, start: 5, end: 5, by: map[int64]*entry{}}, now: time.Unix(0, 0)}
		t.Repeat(map[string]func(*rapid.T){
			"":      func(t *rapid.T) { same(t, p.w, p.n) },
			"fetch": p.fetch, "acknowledge": p.acknowledge, "time": p.pass, "leave": p.leave, "trim": p.trim, "restart": p.restart,
			"bury": p.bury, "alter": p.alter,
		})
	})
}

// same compares a window with a map.
func same(t *rapid.T, w *Window, n *naive) {
	t.Helper()
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	if w.Start() != n.start || w.End() != n.end {
		t.Fatalf("from %d to %d; want %d to %d", w.Start(), w.End(), n.start, n.end)
	}
	locked, next := time.Time{}, time.Time{}
	for _, r := range w.runs {
		for at := r.first; at <= r.last; at++ {
			got := entry{r.state, r.count, r.member, r.until}
			if want := *n.by[at]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("offset %d: %+v; want %+v", at, got, want)
			}
			if e := n.by[at]; e.state == acquired && (locked.IsZero() || e.until.Before(locked)) {
				locked = e.until
			}
			if e := n.by[at]; !e.until.IsZero() && (next.IsZero() || e.until.Before(next)) {
				next = e.until
			}
		}
	}
	if !w.Locked().Equal(locked) || !w.Next().Equal(next) {
		t.Fatalf("locked until %v, next %v; want %v, %v", w.Locked(), w.Next(), locked, next)
	}
}

// Malformed acknowledgements are refused as a whole.
func TestInvalidAcknowledgements(t *testing.T) {
	for name, all := range map[string][]Acknowledgement{
		"backwards":      {{First: 3, Last: 2, Kinds: []Kind{Accept}}},
		"negative":       {{First: -1, Last: 2, Kinds: []Kind{Accept}}},
		"overlapping":    {{First: 0, Last: 2, Kinds: []Kind{Accept}}, {First: 2, Last: 3, Kinds: []Kind{Accept}}},
		"no kind":        {{First: 0, Last: 2}},
		"too few kinds":  {{First: 0, Last: 2, Kinds: []Kind{Accept, Accept}}},
		"unknown kind":   {{First: 0, Last: 0, Kinds: []Kind{5}}},
		"a kind below 0": {{First: 0, Last: 0, Kinds: []Kind{-1}}},
	} {
		w := New(0, Limits{Lock: time.Second, Deliveries: 5, Records: 10})
		w.Fill(0, 4, []Span{{0, 3}})
		w.Acquire(time.Unix(0, 0), "m", []Span{{0, 3}}, 10, false)
		if err := w.Acknowledge(time.Unix(0, 0), "m", all); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if w.Start() != 0 {
			t.Errorf("%s has settled records", name)
		}
	}
}

// A window of a newer version is refused, with what to do.
func TestNewerWindowIsRefused(t *testing.T) {
	if _, _, err := Decode([]byte(`{"format":3}`), Limits{}); err == nil || !strings.Contains(err.Error(), "upgrade this node") {
		t.Errorf("a window of format 3: %v", err)
	}
}
