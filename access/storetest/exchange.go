package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// RunExchange checks what three instances, which have told nothing yet, hear of each other by an access.Exchange.
func RunExchange(t *testing.T, all [3]access.Exchange) {
	tell := func(i int, text string) []string {
		t.Helper()
		others, err := all[i].Trade(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var heard []string
		for _, other := range others {
			heard = append(heard, string(other))
		}
		return slices.Sorted(slices.Values(heard))
	}
	var says [3]string
	hears := func(i int, want ...string) { // all say it again each time, as it may be lost, and is soon forgotten
		t.Helper()
		until.True(t, fmt.Sprintf("instance %d hears %q", i, want), func() bool {
			for j, text := range says {
				if j != i && text != "" {
					tell(j, text)
				}
			}
			return slices.Equal(tell(i, says[i]), want)
		})
	}
	hears(0)
	says[0] = "a"
	hears(1, "a")
	says[1] = "b"
	hears(0, "b")
	hears(2, "a", "b")
	says[0] = "a \x00\n again"
	hears(2, says[0], "b")
	says[2] = "c"
	hears(1, says[0], "c")
	tell(1, "")
	says[1] = ""
	hears(2, says[0])
	says[0] = "" // it is silent
	hears(2)
}

// Exchange connects instances in memory. The zero value connects none yet.
type Exchange struct {
	mu              sync.Mutex
	told            map[*Instance]string
	at              map[*Instance]time.Time
	trades, largest int
}

// Trades returns how often instances have traded.
func (e *Exchange) Trades() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trades
}

// Largest returns the most bytes that an instance has told.
func (e *Exchange) Largest() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.largest
}

// Instance is an access.Exchange, as one instance sees it.
type Instance struct {
	exchange *Exchange
	err      error
}

// Instance returns one more instance.
func (e *Exchange) Instance() *Instance { return &Instance{exchange: e} }

// Fail lets all calls of the instance fail with an error, until it is nil.
func (i *Instance) Fail(err error) {
	i.exchange.mu.Lock()
	defer i.exchange.mu.Unlock()
	i.err = err
}

// Trade implements access.Exchange.
func (i *Instance) Trade(_ context.Context, tell []byte) (others [][]byte, err error) {
	e := i.exchange
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trades, e.largest = e.trades+1, max(e.largest, len(tell))
	if i.err != nil {
		return nil, i.err
	}
	if e.told == nil {
		e.told, e.at = map[*Instance]string{}, map[*Instance]time.Time{}
	}
	for other, text := range e.told {
		if other != i && time.Since(e.at[other]) <= access.Told {
			others = append(others, []byte(text))
		}
	}
	if e.told[i], e.at[i] = string(tell), time.Now(); len(tell) == 0 {
		delete(e.told, i)
	}
	return others, nil
}
