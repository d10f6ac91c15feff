package browser

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// awayRooms is an engine whose store may be away.
type awayRooms struct {
	*engine.Engine
	gone atomic.Bool
}

// AskAll implements gate.Rooms.
func (a *awayRooms) AskAll(ctx context.Context, name string, askers []engine.Asker, claim bool) []engine.Result {
	if a.gone.Load() {
		return []engine.Result{{Err: room.ErrUnavailable}}
	}
	return a.Engine.AskAll(ctx, name, askers, claim)
}

// toldRooms answers with what the test sets.
type toldRooms struct {
	*engine.Engine
	mu  sync.Mutex
	say engine.Answer
}

func (r *toldRooms) set(position int64, wait *engine.Wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say.Position, r.say.Wait = position, wait
}

func (r *toldRooms) change(a engine.Answer, err error) (engine.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		a.Position, a.Wait, a.NextPoll = r.say.Position, r.say.Wait, 500*time.Millisecond
	}
	return a, err
}

// Enter implements gate.Rooms.
func (r *toldRooms) Enter(ctx context.Context, name string, visit room.Visit) (engine.Answer, error) {
	return r.change(r.Engine.Enter(ctx, name, visit))
}

// Ask implements gate.Rooms.
func (r *toldRooms) Ask(ctx context.Context, name, ticket string, client netip.Addr) (engine.Answer, error) {
	return r.change(r.Engine.Ask(ctx, name, ticket, client))
}

// AskAll implements gate.Rooms.
func (r *toldRooms) AskAll(ctx context.Context, name string, askers []engine.Asker, claim bool) []engine.Result {
	results := r.Engine.AskAll(ctx, name, askers, claim)
	for i := range results {
		results[i].Answer, results[i].Err = r.change(results[i].Answer, results[i].Err)
	}
	return results
}

// The script has the same texts as the server, in all languages.
func TestTheScriptSaysTheSame(t *testing.T) {
	for _, lang := range []string{"en", "ko", "ja", "zh-Hans"} {
		t.Run(lang, func(t *testing.T) {
			town := newTown(t, settings(), 1, false)
			rooms := &toldRooms{Engine: town.engine}
			rooms.set(2_000_000, nil)
			town.serve(rooms, nil, false)
			v := newVisitor(t, look{lang: lang, width: 390})
			v.run(chromedp.Navigate(town.url + "/"))
			position := int64(2_000_000)
			for _, wait := range []engine.Wait{
				{}, {High: 59 * time.Second}, {High: time.Minute}, {Low: 30 * time.Second, High: 150 * time.Second},
				{Low: time.Minute, High: time.Minute}, {Low: 2 * time.Minute, High: 2 * time.Minute}, {Low: 200 * time.Second, High: 290 * time.Second},
				{Low: time.Minute, High: 2 * time.Hour}, {High: 3 * time.Hour}, {Low: 30 * time.Minute, High: 150 * time.Minute},
				{Low: 2 * time.Hour, High: 150 * time.Minute}, {Low: 1_000 * time.Hour, High: 1_200 * time.Hour},
			} {
				position = max(1, position/7)
				rooms.set(position, &wait)
				want := town.served(t, lang)
				v.see(number, want[number])
				v.see(ahead, want[ahead])
				v.see(`[data-sluice="wait"]`, want[`[data-sluice="wait"]`])
			}
		})
	}
}

// served returns the texts that the server writes now.
func (town *town) served(t *testing.T, lang string) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, town.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/html")
	request.Header.Set("Accept-Language", lang)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, name := range []string{"number", "ahead", "wait"} {
		_, rest, found := strings.Cut(string(body), `data-sluice="`+name+`">`)
		if !found {
			t.Fatalf("the page has no %s", name)
		}
		text, _, _ := strings.Cut(rest, "<")
		texts[`[data-sluice="`+name+`"]`] = text
	}
	return texts
}
