package main

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
)

// conduct is how a visitor of the demo behaves.
type conduct uint8

const (
	// pays looks at some pages, and pays: the shop ends the visit.
	pays conduct = iota
	// wanders goes away without a word once inside: the pass ends by its time.
	wanders
	// givesUp leaves the line with the page's button.
	givesUp
	// vanishes stops to ask, for good.
	vanishes
	// returns stops to ask, and comes back within the grace.
	returns
)

const (
	// demoRequestTime is the most time for a request of a visitor.
	demoRequestTime = 10 * time.Second
	// demoTries is how often in a row a visitor bears to get no answer.
	demoTries = 5
	// demoAnswer is the most of an answer that is read.
	demoAnswer = 64 << 10
	// vanishAfter is how many answers a visitor gets before it gives up or stops to ask.
	vanishAfter = 2
)

// visitorPlan is what a visitor is going to do.
type visitorPlan struct {
	Arrives time.Duration // after the beginning
	Conduct conduct
	// Away is how long one who returns does not ask.
	Away time.Duration
	// Behind is the position in which one loses patience; nearer the front nobody does.
	Behind int64
	// Looks are the pauses before each page that is looked at.
	Looks []time.Duration
}

// gap is from when a question was sent to when the next one was answered.
type gap struct{ From, To time.Time }

// toldWait is an estimate that a visitor was told.
type toldWait struct {
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
	// Gaps are the times in which nobody can say that the visitor has asked; that of
	// being away is not among them.
	Gaps []gap
	Told []toldWait
	// Inside, CameBack and Paid say what has happened. Sent is that the visitor was
	// told its place is gone.
	Inside, CameBack, Paid, Sent bool
	// AwayFor is how long one who came back had not asked at most.
	AwayFor time.Duration
	// Unanswered counts requests without answer.
	Unanswered int

	lastSent, leftAt time.Time
}

// waitingAnswer is what the gate says to one in line.
type waitingAnswer struct {
	ID       int64 `json:"id"`
	Position int64 `json:"position"`
	NextPoll int64 `json:"next_poll_ms"`
	Wait     *struct {
		Low  int64 `json:"low"`
		High int64 `json:"high"`
	} `json:"estimated_wait_ms"`
}

// Run is the visitor's whole visit. It returns an error if the gate cannot be used.
func (v *demoVisitor) Run(ctx context.Context) error {
	if err := rest(ctx, v.Arrives); err != nil {
		return err
	}
	for answers := 0; ; {
		status, again, err := v.ask(ctx)
		if err != nil {
			return err
		}
		switch status {
		case http.StatusOK:
			v.Inside = true
			return v.shop(ctx)
		case http.StatusGone:
			v.Sent = true
			return nil
		case http.StatusAccepted:
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

// Silence is the longest time in which the visitor may not have asked; with a time,
// the longest of those that it is in.
func (v *demoVisitor) Silence(around time.Time) (longest time.Duration) {
	for _, g := range v.Gaps {
		if around.IsZero() || !around.Before(g.From) && !around.After(g.To) {
			longest = max(longest, g.To.Sub(g.From))
		}
	}
	return longest
}

// room is the name of the room, which is in the name of the ticket's cookie.
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
		var answer waitingAnswer
		if err := json.Unmarshal(got.body, &answer); err != nil {
			return 0, 0, fmt.Errorf("the gate's answer: %w: %s", err, got.body)
		}
		v.Moved = v.Moved || v.Number != 0 && v.Number != answer.ID
		v.Number, v.Position = answer.ID, answer.Position
		if answer.Wait != nil {
			ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
			v.Told = append(v.Told, toldWait{now, ms(answer.Wait.Low), ms(answer.Wait.High)})
		}
		return got.status, time.Duration(answer.NextPoll) * time.Millisecond, nil
	}
	return got.status, 0, nil
}

// asked notes a question that was answered.
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

// shop looks at pages, and does what the visitor has come for. A visit that ends
// before, because a page took too long, is as good as one that wanders.
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
	got, err := v.send(ctx, http.MethodPost, "/paid")
	v.Paid = err == nil && got.status == http.StatusOK
	return err
}

// reply is an answer that was read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request with the cookies, and keeps those that are set. One without
// answer is sent again.
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

// crowd plans visitors of whom so many of a hundred behave so.
type crowd struct {
	Visitors int
	// Over is the time in which they come, evenly.
	Over time.Duration
	// Of a hundred, the others pay.
	Wander, GiveUp, Vanish, Return int
	// Away is how long those who return are away, at least and at most.
	AwayMin, AwayMax time.Duration
	// Behind is the position from which on they lose patience.
	Behind int64
	// Pages is how many pages each looks at, Look for how long on average.
	Pages int
	Look  time.Duration
}

// Plan is the same whenever it is asked for.
func (c crowd) Plan() []visitorPlan {
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
