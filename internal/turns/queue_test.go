package turns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Each taker gets between its least and its wanted amount, all together never exceed the size,
// and every taker is served.
func TestQueueIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 100).Draw(t, "size")
		q := NewQueue(size)
		var held []int64
		total := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				least := rapid.Int64Range(0, 120).Draw(t, "least")
				want := least + rapid.Int64Range(0, 120).Draw(t, "beyond")
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				got, err := q.Take(ctx, least, want)
				fits := min(least, size) <= size-total
				if fits != (err == nil) {
					t.Fatalf("took at least %d with %d of %d taken: %v", least, total, size, err)
				}
				if err != nil {
					return
				}
				if got < min(least, size) || got > want {
					t.Fatalf("got %d, want %d to %d", got, least, want)
				}
				held, total = append(held, got), total+got
			},
			"give": func(t *rapid.T) {
				if len(held) > 0 {
					q.Change(held[0])
					total -= held[0]
					held = held[1:]
				}
			},
			"": func(t *rapid.T) {
				if q.Used() != total || total > size {
					t.Fatalf("%d are used of %d, want %d", q.Used(), size, total)
				}
			},
		})
	})
}

func TestQueueServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(10)
		if _, err := q.Take(t.Context(), 8, 8); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		gone, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		take := func(ctx context.Context, name string, n int64) error {
			_, err := q.Take(ctx, n, n)
			if err == nil {
				order <- name
			}
			return err
		}
		go func() { left <- take(gone, "who leaves", 10) }()
		synctest.Wait()
		go func() { _ = take(t.Context(), "large", 9) }()
		synctest.Wait()
		go func() { _ = take(t.Context(), "small", 1) }()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatal("one was served before its turn")
		}
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatalf("who left got %v", err)
		}
		q.Change(8)
		synctest.Wait()
		if len(order) != 2 {
			t.Errorf("%d were served, want both", len(order))
		}
		q.Change(10)
		if q.Used() != 0 {
			t.Errorf("%d are still used", q.Used())
		}
	})
}
