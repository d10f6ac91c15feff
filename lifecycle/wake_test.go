package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

func TestSleep(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	woken := make(chan struct{}, 1)
	woken <- struct{}{}
	for name, test := range map[string]struct {
		ctx  context.Context
		wake chan struct{}
		d    time.Duration
		took time.Duration
		goes bool
	}{
		"its time":               {context.Background(), nil, time.Minute, time.Minute, true},
		"something to do":        {context.Background(), woken, time.Minute, 0, true},
		"no time":                {context.Background(), nil, 0, 0, true},
		"an end":                 {ended, nil, time.Minute, 0, false},
		"an end, without a time": {ended, nil, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if goes := lifecycle.Sleep(test.ctx, test.wake, test.d); goes != test.goes || time.Since(began) != test.took {
					t.Errorf("goes on: %v, after %v; want %v after %v", goes, time.Since(began), test.goes, test.took)
				}
			})
		})
	}
}

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signal := lifecycle.NewSignal()
		for range 3 { // Two of them have no effect.
			signal.Wake()
		}
		for _, want := range []time.Duration{0, time.Minute} {
			began := time.Now()
			lifecycle.Sleep(t.Context(), signal, time.Minute)
			if took := time.Since(began); took != want {
				t.Errorf("slept for %v, want %v", took, want)
			}
		}
	})
}

func TestBroadcast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b lifecycle.Broadcast
		b.Wake() // Nobody waits.
		ended := make(chan struct{}, 2)
		for range 2 {
			go func() {
				<-b.Wait()
				ended <- struct{}{}
			}()
		}
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("a goroutine that waited after a wake-up did not wait for the next one")
		}
		b.Wake()
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d goroutines woke, want 2", len(ended))
		}
	})
}
