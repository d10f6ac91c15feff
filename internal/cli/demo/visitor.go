package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room/client"
)

// conduct is how a visitor of the demo behaves.
type conduct uint8

const (
	// pays looks at some pages and pays: the shop ends the visit.
	pays conduct = iota
	// wanders leaves without a word once inside: the pass expires.
	wanders
	// givesUp leaves the line with the page's button.
	givesUp
	// vanishes stops asking for good.
	vanishes
	// returns stops asking and comes back within the grace.
	returns
)

const (
	// demoRequestTime is the most time for a request of a visitor.
	demoRequestTime = 10 * time.Second
	// demoTries is how often in a row a request may fail.
	demoTries = 5
	// demoAnswer bounds an answer.
	demoAnswer = 64 << 10
	// vanishAfter is how many answers a visitor gets before giving up or ceasing to ask.
	vanishAfter = 2
)

// visitorPlan is what a visitor is going to do.
type visitorPlan struct {
	Arrives time.Duration // after the beginning
	Conduct conduct
	// Away is how long a returning visitor does not ask.
	Away time.Duration
	// Behind is the position from which on a visitor loses patience.
	Behind int64
	// Looks are the pauses before each page.
	Looks []time.Duration
}

// gap is the time from sending one request to the answer of the next one.
type gap struct{ From, To time.Time }

// estimate is an estimate that a visitor was told.
type estimate struct {
	At        time.Time
	Low, High time.Duration
}

// demoVisitor is a person in front of the gate, with a browser's cookies.
type demoVisitor struct {
	visitorPlan
	gate    string // its URL
	client  *http.Client
	cookies map[string]string

	// Ticket is the first one that was given; Number is the place that the answers name.
	Ticket string
	Number int64
	// Position is the last one that was told.
	Position int64
	// Moved says that answers named different places.
	Moved bool
	// Gaps are the times in which the visitor may not have asked, without the time
	// of being away.
	Gaps      []gap
	Estimates []estimate
	// Inside, CameBack and Paid say what has happened. Sent means that the gate
	// answered that the place is gone.
	Inside, CameBack, Paid, Sent bool
	// PaidIn is how long the answer to the payment took.
	PaidIn time.Duration
	// AwayFor bounds how long a visitor who came back had not asked.
	AwayFor time.Duration
	// Unanswered counts requests without answer.
	Unanswered int

	lastSent, leftAt time.Time
}

// Run is the visitor's whole visit. It returns an error if the gate cannot be used.
func (v *demoVisitor) Run(ctx context.Context) error {
	if err := rest(ctx, v.Arrives); err != nil {
		return err
	}
	came := false
	for answers := 0; ; {
		status, again, err := v.ask(ctx)
		if err != nil {
			return err
		}
		switch status {
		case http.StatusOK:
			// Browsers ask for what a page needs at once. So the gate sees that the cookies came
			// back: until then the slot is the visitor's for the claim window only.
			if came {
				v.Inside = true
				return v.shop(ctx)
			}
			came = true
			continue
		case http.StatusGone:
			v.Sent = true
			return nil
		case http.StatusAccepted:
			came = false
			answers++
		}
		if answers == vanishAfter && !v.CameBack && v.Position >= v.Behind {
			switch v.Conduct {
			case givesUp:
				_, err := v.send(ctx, http.MethodPost, "/.sluice/"+v.room()+"/leave")
				return err
			case vanishes:
				return nil
			case returns:
				v.CameBack, v.leftAt, v.lastSent, again = true, v.lastSent, time.Time{}, v.Away
			case pays, wanders:
			}
		}
		if err := rest(ctx, again); err != nil {
			return err
		}
	}
}

// Silence returns the longest gap; with a time, the longest gap around it.
func (v *demoVisitor) Silence(around time.Time) (longest time.Duration) {
	for _, g := range v.Gaps {
		if around.IsZero() || !around.Before(g.From) && !around.After(g.To) {
			longest = max(longest, g.To.Sub(g.From))
		}
	}
	return longest
}

// room returns the name of the room, which is part of the name of the ticket's cookie.
func (v *demoVisitor) room() string {
	for name := range v.cookies {
		if room, ok := strings.CutPrefix(name, "sluice_ticket_"); ok {
			return room
		}
	}
	return ""
}

// ask asks for the place, and returns when to ask again.
func (v *demoVisitor) ask(ctx context.Context) (status int, again time.Duration, err error) {
	sent := time.Now()
	got, err := v.send(ctx, http.MethodGet, "/")
	if err != nil {
		return 0, 0, err
	}
	now := time.Now()
	switch got.status {
	case http.StatusAccepted, http.StatusOK, http.StatusGone:
		v.asked(sent, now)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(got.header.Get("Retry-After"))
		return got.status, time.Duration(max(seconds, 1)) * time.Second, nil
	default:
		return 0, 0, fmt.Errorf("the gate answered %d: %s", got.status, got.body)
	}
	if got.status == http.StatusAccepted {
		var answer client.Place
		if err := json.Unmarshal(got.body, &answer); err != nil {
			return 0, 0, fmt.Errorf("the gate's answer: %w: %s", err, got.body)
		}
		v.Moved = v.Moved || v.Number != 0 && v.Number != answer.ID
		v.Number, v.Position = answer.ID, 0
		if answer.Position != nil {
			v.Position = *answer.Position
		}
		ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
		if answer.Wait != nil {
			v.Estimates = append(v.Estimates, estimate{now, ms(answer.Wait.Low), ms(answer.Wait.High)})
		}
		return got.status, ms(answer.NextPollMS), nil
	}
	return got.status, 0, nil
}

// asked records an answered request.
func (v *demoVisitor) asked(sent, answered time.Time) {
	switch {
	case !v.lastSent.IsZero():
		v.Gaps = append(v.Gaps, gap{v.lastSent, answered})
	case v.CameBack && v.AwayFor == 0:
		v.AwayFor = answered.Sub(v.leftAt)
	}
	v.lastSent = sent
	if v.Ticket == "" {
		v.Ticket = v.cookies["sluice_ticket_"+v.room()]
	}
}

// shop looks at pages and pays. A visit that ends before, because a page took too
// long, counts as one that wanders.
func (v *demoVisitor) shop(ctx context.Context) error {
	for _, look := range v.Looks {
		if err := rest(ctx, look); err != nil {
			return err
		}
		got, err := v.send(ctx, http.MethodGet, "/page")
		if err != nil || got.status != http.StatusOK {
			return err
		}
	}
	if v.Conduct == wanders {
		return nil
	}
	began := time.Now()
	got, err := v.send(ctx, http.MethodPost, "/paid")
	v.PaidIn = time.Since(began)
	v.Paid = err == nil && got.status == http.StatusOK
	return err
}

// reply is an answer that was read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request with the cookies and stores those that are set. A request
// without an answer is sent again.
func (v *demoVisitor) send(ctx context.Context, method, path string) (reply, error) {
	for tries := 1; ; tries++ {
		got, err := v.sendOnce(ctx, method, path)
		if err == nil || ctx.Err() != nil || tries == demoTries {
			return got, err
		}
		v.Unanswered++
		if err := rest(ctx, time.Second/2); err != nil {
			return reply{}, err
		}
	}
}

func (v *demoVisitor) sendOnce(ctx context.Context, method, path string) (_ reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, demoRequestTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, v.gate+path, http.NoBody)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Accept", "application/json")
	for name, value := range v.cookies {
		request.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	response, err := v.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	for _, cookie := range response.Cookies() {
		if cookie.MaxAge < 0 {
			delete(v.cookies, cookie.Name)
		} else {
			v.cookies[cookie.Name] = cookie.Value
		}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, demoAnswer))
	return reply{response.StatusCode, response.Header, body}, err
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// visitorMix plans visitors by the percentages of their conduct.
type visitorMix struct {
	Visitors int
	// Over is the time over which they arrive evenly.
	Over time.Duration
	// Percentages; the other visitors pay.
	Wander, GiveUp, Vanish, Return int
	// AwayMin and AwayMax bound how long returning visitors are away.
	AwayMin, AwayMax time.Duration
	// Behind is the position from which on visitors lose patience.
	Behind int64
	// Pages is how many pages each visitor looks at, Look for how long on average.
	Pages int
	Look  time.Duration
}

// Plan returns the same plans each time.
func (c visitorMix) Plan() []visitorPlan {
	dice := rand.New(rand.NewPCG(4, 2026)) //nolint:gosec // The demo is the same each time.
	plans := make([]visitorPlan, c.Visitors)
	for i := range plans {
		p := &plans[i]
		p.Behind = c.Behind
		p.Arrives = c.Over * time.Duration(i) / time.Duration(c.Visitors)
		p.Away = c.AwayMin + time.Duration(dice.Float64()*float64(c.AwayMax-c.AwayMin))
		for range c.Pages {
			p.Looks = append(p.Looks, c.Look/2+time.Duration(dice.Float64()*float64(c.Look)))
		}
		at := dice.IntN(100)
		for _, part := range []struct {
			of int
			conduct
		}{{c.Wander, wanders}, {c.GiveUp, givesUp}, {c.Vanish, vanishes}, {c.Return, returns}} {
			if at < part.of {
				p.Conduct = part.conduct
				break
			}
			at -= part.of
		}
	}
	return plans
}
