package api_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// fake is an engine that records its calls, and answers as a test sets.
type fake struct {
	mu     sync.Mutex
	calls  []string
	fail   map[string]error // by method
	answer engine.Answer
	view   engine.View
	made   bool
	onAsk  func(n int) (engine.Answer, error) // n counts the asks from 1
	asks   int
}

var opened = time.Date(2026, 11, 28, 9, 0, 0, 0, time.FixedZone("CET", 3600))

func newFake() *fake {
	rate := 2.5
	return &fake{
		fail: map[string]error{},
		answer: engine.Answer{
			Ticket: "ticket-7", ID: 7, State: room.Waiting, Position: 3, NextPoll: 2 * time.Second,
			Wait: &engine.Wait{Low: time.Second, High: 4 * time.Second},
		},
		view: engine.View{
			Room: engine.Room{
				Name: "shop", Epoch: 2, Seed: []byte("seed"), CreatedAt: opened,
				Settings: room.Settings{Mode: room.Teller, Capacity: 5}.WithDefaults(),
			},
			Status:  room.Status{Waiting: 9, Inside: 5, Called: 1, Entered: 20, Admitted: 8, NoShows: 2, Departed: 4, Expired: 3, EventsDropped: 6, Now: opened},
			Phase:   room.Queueing,
			Outflow: &rate,
		},
	}
}

func (f *fake) call(method string, arguments ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := method
	for _, a := range arguments {
		text += fmt.Sprintf(" %v", a)
	}
	f.calls = append(f.calls, text)
	return f.fail[method]
}

func (f *fake) PutRoom(_ context.Context, name string, s room.Settings) (engine.View, bool, error) {
	return f.view, f.made, f.call("PutRoom", name, s.Mode, s.Capacity)
}

func (f *fake) Room(_ context.Context, name string) (engine.View, error) {
	return f.view, f.call("Room", name)
}

func (f *fake) Rooms(_ context.Context, after string, limit int) ([]engine.View, bool, error) {
	return []engine.View{f.view}, limit == 1, f.call("Rooms", after, limit)
}

func (f *fake) DeleteRoom(_ context.Context, name string) error { return f.call("DeleteRoom", name) }

func (f *fake) ReportHealth(_ context.Context, name string, utilization float64) (engine.View, error) {
	return f.view, f.call("ReportHealth", name, utilization)
}

func (f *fake) SoldOut(_ context.Context, name string) (engine.View, error) {
	return f.view, f.call("SoldOut", name)
}

func (f *fake) Pause(_ context.Context, name string) (engine.View, error) {
	return f.view, f.call("Pause", name)
}

func (f *fake) Resume(_ context.Context, name string) (engine.View, error) {
	return f.view, f.call("Resume", name)
}

func (f *fake) RevokeAll(_ context.Context, name string) error { return f.call("RevokeAll", name) }

func (f *fake) RevokeTicket(_ context.Context, name, ticket string) error {
	return f.call("RevokeTicket", name, ticket)
}

func (f *fake) RevokeVisitor(_ context.Context, name, key string) error {
	return f.call("RevokeVisitor", name, key)
}

func (f *fake) MakeCodes(_ context.Context, name, lane string, count int, until time.Time) ([]string, error) {
	return []string{"7K3M", "9QXF"}, f.call("MakeCodes", name, lane, count, until.Unix())
}

func (f *fake) RevokeCodes(_ context.Context, name string) error { return f.call("RevokeCodes", name) }

func (f *fake) Enter(_ context.Context, name string, v room.Visit) (engine.Answer, error) {
	if v.Token != "" {
		return f.answer, f.call("Enter", name, v.Key, v.Client, v.Token)
	}
	if v.Code != "" {
		return f.answer, f.call("Enter", name, v.Client, v.Code)
	}
	return f.answer, f.call("Enter", name, v.Key, v.Client)
}

func (f *fake) Ask(_ context.Context, name, ticket string, client netip.Addr) (engine.Answer, error) {
	if f.onAsk != nil {
		f.mu.Lock()
		f.asks++
		n := f.asks
		f.mu.Unlock()
		return f.onAsk(n)
	}
	return f.answer, f.call("Ask", name, ticket, client)
}

func (f *fake) Parse(_ context.Context, name, ticket string, client netip.Addr) (engine.Ticket, error) {
	return engine.Ticket{Number: 7}, f.call("Parse", name, ticket, client)
}

func (f *fake) Renew(_ context.Context, name, ticket string, client netip.Addr) (engine.Answer, error) {
	return f.answer, f.call("Renew", name, ticket, client)
}

func (f *fake) Leave(_ context.Context, name, ticket string, client netip.Addr) error {
	return f.call("Leave", name, ticket, client)
}

func (f *fake) JWKS(context.Context) ([]byte, error) {
	return []byte(`{"keys":[{"kty":"OKP"}]}`), f.call("JWKS")
}

func (f *fake) RotateKeys(context.Context) error { return f.call("RotateKeys") }
func (f *fake) RevokeKeys(context.Context) error { return f.call("RevokeKeys") }

// AskAll is used by the hub.
func (f *fake) AskAll(_ context.Context, name string, askers []engine.Asker, claim bool) []engine.Result {
	err := f.call("AskAll", name, len(askers), claim)
	results := make([]engine.Result, len(askers))
	for i := range results {
		results[i] = engine.Result{Answer: f.answer, Err: err}
	}
	return results
}
