package gate

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/watch"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var sampleAnswer = engine.Answer{
	Ticket: "ticket-3", ID: 3, State: room.Waiting, Position: 3, NextPoll: 4 * time.Second,
	Wait: &engine.Wait{Low: time.Minute, High: 2 * time.Minute}, New: true,
}

// fake is a room whose visitors are set by the test. Tickets are ticket-N, passes
// PASS-N.
type fake struct {
	mu       sync.Mutex
	settings room.Settings
	known    error // of Settings
	away     error // error of all other methods
	enter    error
	// enterInside lets newcomers in.
	enterInside bool
	visitors    []room.State // by number from 1
	gone        map[int64]room.Reason
	entered     []room.Visit
	proven      map[int64]bool // who has passed a challenge
	claims      int
	asks        int
	left        []string
	ends        time.Time
}

func newFake() *fake {
	return &fake{
		settings: room.Settings{Mode: room.Teller, Capacity: 1}.WithDefaults(),
		gone:     map[int64]room.Reason{}, proven: map[int64]bool{}, ends: time.Now().Add(10 * time.Minute),
	}
}

func (f *fake) set(number int64, state room.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for int64(len(f.visitors)) < number {
		f.visitors = append(f.visitors, room.Waiting)
	}
	f.visitors[number-1] = state
}

func (f *fake) goneFor(number int64, reason room.Reason) {
	f.set(number, room.Gone)
	f.gone[number] = reason
}

func (f *fake) Settings(context.Context, string) (room.Settings, error) { return f.settings, f.known }

func (f *fake) number(text, prefix string, bad error) (int64, error) {
	digits, ok := strings.CutPrefix(text, prefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || n > int64(len(f.visitors)) {
		return 0, bad
	}
	return n, nil
}

// answer returns the answer to a visitor; waiting ones are ordered by their number.
func (f *fake) answer(n int64, claim bool) (engine.Answer, error) {
	f.asks++
	if claim {
		f.claims++
	}
	a := sampleAnswer
	a.Proven = f.proven[n]
	a.ID, a.Position, a.Ticket, a.New = n, n, "ticket-"+strconv.FormatInt(n, 10), false
	state := f.visitors[n-1]
	if state == room.Called && claim {
		state = room.Inside
		f.visitors[n-1] = state
	}
	a.State = state
	switch state {
	case room.Gone:
		return engine.Answer{}, &room.GoneError{Reason: f.gone[n], ID: n}
	case room.Inside:
		a.Pass, a.PassExpiresAt, a.Position, a.Wait = "PASS-"+strconv.FormatInt(n, 10), f.ends, 0, nil
	case room.Called:
		a.Position = 0
	}
	return a, nil
}

func (f *fake) MayEnter(context.Context, string) error { return f.enter }

func (f *fake) Enter(_ context.Context, _ string, visit room.Visit) (engine.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil || f.enter != nil {
		if f.away != nil {
			return engine.Answer{}, f.away
		}
		return engine.Answer{}, f.enter
	}
	f.entered = append(f.entered, visit)
	f.visitors = append(f.visitors, room.Waiting)
	f.proven[int64(len(f.visitors))] = visit.Proven
	if f.enterInside {
		f.visitors[len(f.visitors)-1] = room.Inside
	}
	a, err := f.answer(int64(len(f.visitors)), true)
	a.New = true
	return a, err
}

func (f *fake) Ask(_ context.Context, _, ticket string, _ netip.Addr) (engine.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return engine.Answer{}, f.away
	}
	n, err := f.number(ticket, "ticket-", engine.ErrBadTicket)
	if err != nil {
		return engine.Answer{}, err
	}
	return f.answer(n, true)
}

func (f *fake) Renew(ctx context.Context, name, ticket string, client netip.Addr) (engine.Answer, error) {
	if f.settings.Renewals == 0 && f.away == nil {
		return engine.Answer{}, room.ErrNotRenewable
	}
	return f.Ask(ctx, name, ticket, client)
}

func (f *fake) AskPass(_ context.Context, _, pass string, _ netip.Addr) (engine.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return engine.Answer{}, f.away
	}
	n, err := f.number(pass, "PASS-", engine.ErrBadPass)
	if err != nil {
		return engine.Answer{}, err
	}
	a, err := f.answer(n, false)
	a.Ticket = ""
	return a, err
}

func (f *fake) Parse(_ context.Context, _, ticket string, _ netip.Addr) (engine.Ticket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.number(ticket, "ticket-", engine.ErrBadTicket)
	return engine.Ticket{Number: n, Proven: f.proven[n]}, err
}

func (f *fake) Prove(_ context.Context, _, ticket string, _ netip.Addr) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.number(ticket, "ticket-", engine.ErrBadTicket)
	f.proven[n] = true
	return ticket, err
}

func (f *fake) AskAll(_ context.Context, _ string, askers []engine.Asker, claim bool) []engine.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	results := make([]engine.Result, len(askers))
	for i, asker := range askers {
		if results[i].Err = f.away; f.away == nil {
			results[i].Answer, results[i].Err = f.answer(asker.Ticket.Number, claim)
		}
	}
	return results
}

func (f *fake) Leave(_ context.Context, _, ticket string, _ netip.Addr) error {
	return f.leave(ticket, "ticket-", engine.ErrBadTicket)
}

func (f *fake) LeavePass(_ context.Context, _, pass string) error {
	return f.leave(pass, "PASS-", engine.ErrBadPass)
}

func (f *fake) leave(text, prefix string, bad error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return f.away
	}
	n, err := f.number(text, prefix, bad)
	if err == nil {
		f.left = append(f.left, text)
		f.visitors[n-1], f.gone[n] = room.Gone, room.Left
	}
	return err
}

// streams writes one event, as JSON.
type streams struct {
	err   error
	specs []watch.Stream
}

func (s *streams) Serve(w http.ResponseWriter, _ *http.Request, spec watch.Stream) error {
	s.specs = append(s.specs, spec)
	if s.err == nil {
		_, _ = w.Write(spec.Format(nil, &sampleAnswer))
	}
	return s.err
}

// closeIdle closes the idle connections of a proxy, so that none outlives its test.
func closeIdle(proxy http.Handler) {
	transport := proxy.(*httputil.ReverseProxy).Transport.(carried).RoundTripper
	if counted, ok := transport.(observed); ok {
		transport = counted.RoundTripper
	}
	transport.(*http.Transport).CloseIdleConnections()
}
