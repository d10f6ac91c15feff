package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluice-project/sluice/bulk"
)

// TestUnfinishedIsSmall: a store copies an Unfinished for each change while its lock is held.
func TestUnfinishedIsSmall(t *testing.T) {
	if small, whole := unsafe.Sizeof(bulk.Unfinished{}), unsafe.Sizeof(bulk.Action{}); small > whole/3 {
		t.Errorf("an Unfinished has %d bytes, an Action %d: want a third at most", small, whole)
	}
}

// TestAdvance: each item is taken once, maxConcurrent at a time; errors that pass are collected, and one that
// does not is returned.
func TestAdvance(t *testing.T) {
	const items = 10*maxConcurrent + 1
	for _, test := range []struct {
		name   string
		stop   time.Duration // after which the loop is stopped
		err    error         // of every tenth item
		failed int
		want   error
	}{
		{"all pass", time.Hour, nil, 0, nil},
		{"some fail for now", time.Hour, bulk.ErrUnavailable, items/10 + 1, nil},
		{"some are gone", time.Hour, bulk.ErrNotFound, 0, nil},
		{"some were advanced by another instance", time.Hour, bulk.ErrNoChange, 0, nil},
		{"some fail for good", time.Hour, bulk.ErrBroken, 0, bulk.ErrBroken},
		{"the loop is stopped", 1500 * time.Millisecond, nil, 0, context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var running, most int
				taken := make([]int, items)
				numbers := make([]int, items)
				for i := range numbers {
					numbers[i] = i
				}
				ctx, cancel := context.WithTimeout(t.Context(), test.stop)
				defer cancel()
				failed, err := advance(ctx, &Engine{log: slog.New(slog.DiscardHandler)}, "test", numbers, func(i int) error {
					count := func(n int) {
						mu.Lock()
						defer mu.Unlock()
						running += n
						most = max(most, running)
					}
					count(1)
					time.Sleep(time.Second)
					count(-1)
					taken[i]++
					if i%10 == 0 {
						return test.err
					}
					return nil
				})
				if len(failed) != test.failed || !errors.Is(err, test.want) {
					t.Errorf("%d failed, with %v; want %d, %v", len(failed), err, test.failed, test.want)
				}
				if most != maxConcurrent {
					t.Errorf("%d ran at a time, want %d", most, maxConcurrent)
				}
				for i, n := range taken {
					if late := i >= 2*maxConcurrent; n > 1 || n == 0 && test.want == nil || n == 1 && late && test.stop < time.Hour {
						t.Errorf("item %d was taken %d times", i, n)
					}
				}
			})
		})
	}
}
