package watch

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// written is a response in memory.
type written struct {
	mu     sync.Mutex
	header http.Header
	text   strings.Builder
	block  chan struct{} // if set, writes wait for it, or the deadline
	until  time.Time
}

func (w *written) Header() http.Header { return w.header }
func (w *written) WriteHeader(int)     {}
func (w *written) Flush()              {}
func (w *written) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = at
	return nil
}

func (w *written) deadline() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until
}

func (w *written) Write(p []byte) (int, error) {
	if w.block != nil {
		select {
		case <-w.block:
		case <-time.After(time.Until(w.deadline())):
			return 0, errors.New("deadline")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// visit opens a stream in a goroutine, and returns a function that closes it.
func visit(t *testing.T, h *Hub, number int64) (*written, context.CancelFunc) {
	w := &written{header: http.Header{}}
	return w, visitWith(t, h, number, w)
}

func visitWith(t *testing.T, h *Hub, number int64, w *written) context.CancelFunc {
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	go func() {
		if err := h.Serve(w, r, Stream{Room: roomOf(number), Ticket: engine.Ticket{Number: number}, Claim: number%4 < 2, Format: format}); err != nil {
			t.Error(err)
		}
	}()
	return cancel
}

func TestComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake()
		h := start(t, e)
		w, leave := visit(t, h, 2)
		defer leave()
		time.Sleep(10 * time.Second)
		e.mu.Lock()
		e.otherway = engine.Result{Err: room.ErrUnavailable}
		e.mu.Unlock()
		time.Sleep(52 * time.Second)
		if got := strings.Count(w.String(), ":\n\n"); got != 3 && got != 4 {
			t.Errorf("%d comments in a silent minute, want one every 15 s: %q", got, w)
		}
		if strings.Count(w.String(), "data:") != 1 {
			t.Errorf("the stream of one who does not move: %q", w)
		}
		asked := e.count(2)
		e.mu.Lock()
		e.otherway = waiting(400)
		e.mu.Unlock()
		time.Sleep(3 * time.Second)
		if e.count(2) == asked || !strings.HasSuffix(w.String(), "data: 2 1 at 400\n\n") {
			t.Errorf("after the store came back: %q", w)
		}
	})
}

// Streams get their comments while the store hangs.
func TestCommentsWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFake()
		h := start(t, engine)
		var visitors []*written
		for i := range 40 {
			w, leave := visit(t, h, int64(i))
			defer leave()
			visitors = append(visitors, w)
		}
		time.Sleep(time.Second)
		engine.mu.Lock()
		engine.delay = time.Hour
		engine.mu.Unlock()
		time.Sleep(65 * time.Second)
		for i, w := range visitors {
			if got := strings.Count(w.String(), ":\n\n"); got < 3 {
				t.Errorf("stream %d has %d comments: %q", i, got, w)
			}
		}
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 5_000
		engine := newFake()
		h := start(t, engine)
		var leaves []context.CancelFunc
		for i := range streams {
			_, leave := visit(t, h, int64(i))
			leaves = append(leaves, leave)
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		engine.mu.Lock()
		defer engine.mu.Unlock()
		if engine.mixed || engine.largest > room.MaxAsk || engine.largest < 100 {
			t.Errorf("batches of several rooms %v, the largest of %d", engine.mixed, engine.largest)
		}
		for number := range int64(streams) {
			// Once in each second, up to a tenth more often.
			if got := engine.asked[number]; got < 9 || got > 13 {
				t.Fatalf("asked %d times in 10 s", got)
			}
			if claims := engine.claimed[number]; (claims > 0) != (number%4 < 2) {
				t.Fatalf("number %d was claimed %d times", number, claims)
			}
		}
		if h.Streams() != streams {
			t.Errorf("%d streams", h.Streams())
		}
		for _, leave := range leaves {
			defer leave()
		}
		// While the store is slow, more become due than fit in one batch.
		engine.delay = 3 * time.Second
		engine.mu.Unlock()
		time.Sleep(10 * time.Second)
		engine.mu.Lock()
		engine.delay = 0
		if engine.largest != room.MaxAsk {
			t.Errorf("the largest batch has %d", engine.largest)
		}
	})
}

// Ended requests leave nothing behind.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, newFake())
		for i := range 100 {
			_, leave := visit(t, h, int64(i))
			time.Sleep(100 * time.Millisecond)
			leave()
		}
		synctest.Wait()
		if h.Streams() != 0 || len(h.all) != 0 || h.due.Len() != 0 {
			t.Errorf("%d streams are left, %d known, %d scheduled", h.Streams(), len(h.all), h.due.Len())
		}
	})
}

func TestInterval(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer engine.Answer
		want   time.Duration
	}{
		{"as the answer says", engine.Answer{State: room.Waiting, Position: 5_000, NextPoll: 4 * time.Second}, 4 * time.Second},
		{"at most every 15 s", engine.Answer{State: room.Waiting, Position: 5_000, NextPoll: time.Minute}, 15 * time.Second},
		{"before the draw", engine.Answer{State: room.Waiting, NextPoll: 4 * time.Second}, 4 * time.Second},
		{"near the front", engine.Answer{State: room.Waiting, Position: 100, NextPoll: 4 * time.Second}, 500 * time.Millisecond},
		{"nearer than half a second", engine.Answer{State: room.Waiting, Position: 1, NextPoll: 100 * time.Millisecond}, 100 * time.Millisecond},
		{"soon", engine.Answer{State: room.Waiting, Position: 5_000, NextPoll: 4 * time.Second, Wait: &engine.Wait{Low: time.Second}}, 500 * time.Millisecond},
		{"not soon", engine.Answer{State: room.Waiting, Position: 5_000, NextPoll: 4 * time.Second, Wait: &engine.Wait{Low: 9 * time.Second}}, 4 * time.Second},
		{"called", engine.Answer{State: room.Called, NextPoll: 4 * time.Second}, 500 * time.Millisecond},
		{"inside", engine.Answer{State: room.Inside, NextPoll: 4 * time.Second}, 4 * time.Second},
		{"no less than a turn", engine.Answer{State: room.Inside}, 50 * time.Millisecond},
	} {
		if got := Interval(&test.answer); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// none is a sink that accepts everything.
type none struct{}

func (none) send([]byte, time.Time) (bool, error) { return true, nil }
func (none) flush(time.Time) error                { return nil }
func (none) gone() bool                           { return false }
func (none) end()                                 {}

// For any sequence of operations, the hub knows each stream once, and takes from the schedule
// exactly the due streams.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := New(newFake())
		var here []*stream
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pick := func() (int, *stream) {
				i := rapid.IntRange(0, len(here)-1).Draw(t, "which")
				return i, here[i]
			}
			switch action := rapid.SampledFrom([]string{"add", "put", "drop", "take"}).Draw(t, "action"); {
			case action == "add" || len(here) == 0:
				s := &stream{sink: none{}, spec: Stream{Room: "shop", Ticket: engine.Ticket{Number: rapid.Int64Range(1, 3).Draw(t, "number")}}}
				full := h.places[s.spec.place()] == MaxPerPlace
				if err := h.reserve(s.spec.place()); (err != nil) != full {
					t.Fatal(err)
				} else if err != nil {
					continue
				}
				h.add(s)
				here = append(here, s)
			case action == "put":
				if _, s := pick(); s.at == 0 {
					h.put(s, time.Duration(rapid.IntRange(1, 1000).Draw(t, "after"))*time.Hour)
				}
			case action == "drop":
				i, s := pick()
				here = append(here[:i], here[i+1:]...)
				h.drop(s)
				h.drop(s)
				h.put(s, time.Hour)
			default:
				now := time.Now().Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "now")) * time.Hour)
				due := 0
				for _, s := range here {
					if s.at > 0 && !s.due.After(now) {
						due++
					}
				}
				batches, _ := h.takeDue(now)
				for _, b := range batches {
					due -= len(b.streams)
				}
				if due != 0 {
					t.Fatalf("%d streams too few were taken", due)
				}
			}
			checkKnown(t, h, here)
		}
	})
}

// checkKnown checks that the hub knows exactly these streams.
func checkKnown(t *rapid.T, h *Hub, here []*stream) {
	if h.Streams() != len(here) || len(h.all) != len(here) {
		t.Fatalf("%d and %d streams, want %d", h.Streams(), len(h.all), len(here))
	}
	counted := map[place]int{}
	for _, s := range here {
		counted[s.spec.place()]++
	}
	if !maps.Equal(counted, h.places) {
		t.Fatalf("%v are counted, want %v", h.places, counted)
	}
	for i, s := range h.due.Items() {
		if s.at != i+1 || h.all[s.slot] != s {
			t.Fatal("a stream of the schedule is not at its place")
		}
	}
}
