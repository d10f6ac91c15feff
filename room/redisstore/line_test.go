//go:build redis

package redisstore_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/storetest"
)

// line is a room on a server whose clock a test moves.
type line struct {
	t      *testing.T
	store  *redisstore.Store
	terms  room.Terms
	offset atomic.Int64
}

func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{t: t}
	l.store = open(t, redisstore.Options{
		URL: redistest.Start(t, redistest.Options{}).URL(), ClockOffset: func() time.Duration { return time.Duration(l.offset.Load()) },
	})
	l.terms = room.Terms{
		Room: "shop", MaxWaiting: 1_000, TTL: time.Hour, Claim: time.Minute, Abandon: 5 * time.Minute, Grace: time.Hour, Away: 24 * time.Hour,
	}
	var err error
	if l.terms.Revision, err = l.store.PutRoom(t.Context(), "shop", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	l.expire()
	return l
}

// after moves the clock.
func (l *line) after(d time.Duration) { l.offset.Add(int64(d)) }

func (l *line) expire() {
	l.t.Helper()
	if due, err := l.store.Expire(l.t.Context(), l.terms); err != nil || due.More {
		l.t.Fatalf("Expire: %+v, %v", due, err)
	}
}

func (l *line) enter(visitors int) {
	l.t.Helper()
	for range visitors {
		if _, err := l.store.Enter(l.t.Context(), l.terms, room.Arrival{Draw: 5}); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *line) ask(numbers ...int64) []room.Place {
	l.t.Helper()
	places, err := l.store.Ask(l.t.Context(), l.terms, storetest.Bearers(numbers...), false)
	if err != nil {
		l.t.Fatal(err)
	}
	return places
}

// ahead checks how many are in front of visitors 1, 2 and so on; -1 is a visitor who does not wait.
func (l *line) ahead(places []room.Place, want ...int64) {
	l.t.Helper()
	var got []int64
	for _, p := range places {
		if p.State != room.Waiting {
			p.Ahead = -1
		}
		got = append(got, p.Ahead)
	}
	if !slices.Equal(got, want) {
		l.t.Errorf("ahead of them are %d, want %d", got, want)
	}
}

// Visitors with the same draw are in the order of their numbers, whether the others are called,
// skipped or in the queue: 9 before 10, though "10" sorts before "9".
func TestOfTheSameDrawTheFirstIsFirst(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.terms.DrawUntil = time.Now().Add(24 * time.Hour)
	l.enter(12)
	l.terms.Capacity = 3
	l.expire()
	l.ahead(l.ask(1, 2, 3, 4, 9, 10, 11, 12), -1, -1, -1, 3, 8, 9, 10, 11)

	l.after(2 * time.Minute) // they are no-shows, and the next are called
	l.expire()
	l.ahead(l.ask(4, 5, 6, 7, 10), -1, -1, -1, 6, 9)
	l.ahead(l.ask(3, 10), 2, 9)
	if p, err := l.store.Leave(t.Context(), l.terms, room.Bearer{Number: 2}, room.Left); err != nil || p.Ahead != 1 || !p.Drawn {
		t.Errorf("who was skipped leaves from %+v, %v; want behind one", p, err)
	}
}

func TestWhoIsSkippedLeavesFromItsPlace(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enter(12)
	l.after(6 * time.Minute)
	l.ask(5, 6, 7, 8)
	l.terms.Capacity = 2
	l.expire() // skips 1 to 4, calls 5 and 6
	before, err := l.store.Leave(t.Context(), l.terms, room.Bearer{Number: 4}, room.Left)
	if err != nil || before.State != room.Waiting || before.Ahead != 3 {
		t.Errorf("it leaves from %+v, %v; want behind 3", before, err)
	}
	l.ahead(l.ask(12, 3), 10, 2)
}

// A sheet with a visitor who is called for long is checked late, but not later than is due for
// others on it.
func TestWhoIsSilentIsGoneThoughAnotherIsCalledForLong(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enter(1)
	l.terms.Claim, l.terms.Abandon, l.terms.Grace, l.terms.Capacity = 10*time.Minute, 20*time.Second, 20*time.Second, 1
	l.expire() // calls 1
	l.after(time.Minute)
	l.expire() // checks the sheet
	l.enter(1)
	l.after(time.Minute)
	l.expire()
	if s, err := l.store.Status(t.Context(), "shop"); err != nil || s.Waiting != 0 || s.Called != 1 {
		t.Errorf("after a minute of silence: %+v, %v; want the second visitor gone", s, err)
	}
}

func TestWhoMissesIsGoneByTheTermsOfThen(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enter(1)
	l.terms.Claim, l.terms.Abandon, l.terms.Grace, l.terms.Capacity = 10*time.Minute, 20*time.Second, 20*time.Second, 1
	l.expire()
	l.after(time.Minute)
	l.expire()
	l.terms.Grace = 5 * time.Minute
	l.after(10 * time.Minute)
	l.expire()
	if s, err := l.store.Status(t.Context(), "shop"); err != nil || s.NoShows != 1 || s.Departed != 1 {
		t.Errorf("after ten minutes of silence: %+v, %v; want the visitor gone", s, err)
	}
}
