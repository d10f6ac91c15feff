package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sender is a body that stalls once it has sent some bytes, until its read deadline passes.
type sender struct {
	http.ResponseWriter
	rest   io.Reader
	once   sync.Once
	passed chan struct{}
}

func sends(bytes int) *sender {
	return &sender{httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", bytes)), sync.Once{}, make(chan struct{})}
}

func (s *sender) Read(p []byte) (int, error) {
	if n, err := s.rest.Read(p); err == nil {
		return n, nil
	}
	<-s.passed
	return 0, os.ErrDeadlineExceeded
}

func (s *sender) SetReadDeadline(time.Time) error {
	s.once.Do(func() { close(s.passed) })
	return nil
}

// TestSlowUploadsGiveWay: when the memory is used up, the slowest chunk of the tenant that holds
// the most gives way, and chunks of other tenants stay.
func TestSlowUploadsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newUploadMemory(1 << 20)
		ends := map[string]error{}
		var mu sync.Mutex
		var working sync.WaitGroup
		read := func(tenant, name string, body *sender) {
			working.Go(func() {
				c := memory.begin(tenant, http.NewResponseController(body))
				defer c.free()
				err := c.readFrom(t.Context(), body)
				mu.Lock()
				defer mu.Unlock()
				ends[name] = err
			})
			synctest.Wait()
		}
		slow, fast, other := sends(200<<10), sends(250<<10), sends(60<<10)
		read("whale", "slow", slow)
		time.Sleep(time.Second)
		read("other", "other", other)
		time.Sleep(time.Minute)
		read("whale", "fast", fast)
		arrives := func(tenant string, bytes int) error {
			c := memory.begin(tenant, http.NewResponseController(httptest.NewRecorder()))
			defer c.free()
			return c.readFrom(t.Context(), strings.NewReader(strings.Repeat("x", bytes)))
		}
		if err := arrives("new", 100<<10); err != nil || len(ends) > 0 {
			t.Fatalf("a chunk for which there is memory: %v; ended %v", err, ends)
		}
		if err := arrives("new", 500<<10); err != nil {
			t.Errorf("a chunk of a tenant that holds nothing: %v", err)
		}
		synctest.Wait()
		if !errors.Is(ends["slow"], errGaveWay) || len(ends) != 1 {
			t.Errorf("ended: %v, want the slow one alone", ends)
		}
		_ = fast.SetReadDeadline(time.Now())
		_ = other.SetReadDeadline(time.Now())
		working.Wait()
		if memory.left != 1<<20 || len(memory.held) > 0 || len(memory.reading) > 0 {
			t.Errorf("in the end %d bytes are free, held: %v", memory.left, memory.held)
		}
	})
}

// TestUploadsWithoutMemory: chunks that have arrived do not give way; who needs their memory
// waits for it.
func TestUploadsWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newUploadMemory(64 << 10)
		control := http.NewResponseController(httptest.NewRecorder())
		stored := memory.begin("a", control)
		if err := stored.readFrom(t.Context(), strings.NewReader("1")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		late := memory.begin("b", control)
		if err := late.readFrom(t.Context(), strings.NewReader("1")); !errors.Is(err, errGaveWay) || time.Since(began) != uploadWait {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		late.free()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := memory.begin("b", control)
		if err := gone.readFrom(ctx, strings.NewReader("1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that is gone: %v", err)
		}
		gone.free()
		time.AfterFunc(time.Second, stored.free)
		next := memory.begin("b", control)
		if err := next.readFrom(t.Context(), strings.NewReader("1")); err != nil {
			t.Errorf("once there is memory: %v", err)
		}
		next.free()
	})
}

// TestFreePlacesGoToTheTenantWithTheFewest: a tenant with many uploads keeps others waiting for
// one of them at most.
func TestFreePlacesGoToTheTenantWithTheFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, time.Minute)
		var mu sync.Mutex
		var order []string
		var working sync.WaitGroup
		enter := func(tenant string) {
			working.Go(func() {
				leave, ok := g.enter(t.Context(), tenant)
				if !ok {
					t.Errorf("%s was refused", tenant)
					return
				}
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
				time.Sleep(time.Second)
				leave()
			})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		for _, tenant := range []string{"whale", "whale", "whale", "whale", "whale", "small", "other"} {
			enter(tenant)
		}
		working.Wait()
		want := []string{"whale", "whale", "small", "whale", "other", "whale", "whale"}
		if !slices.Equal(order, want) {
			t.Errorf("entered: %v, want %v", order, want)
		}
		if g.free != 2 || len(g.held) > 0 || len(g.waiting) > 0 {
			t.Errorf("in the end %d places are free, held: %v", g.free, g.held)
		}
	})
}
