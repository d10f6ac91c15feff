package turns

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// One that asks for little is next, however many wait who ask for much, and again after that.
func TestLittleDoesNotWaitBehindMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1)
		if _, err := q.Take(t.Context(), 1, 1); err != nil {
			t.Fatal(err)
		}
		served := make(chan string, 1000)
		send := func(name string, of *Flow, cost int64) {
			go func() {
				if _, err := q.TakeFor(t.Context(), of, cost, 1); err == nil {
					served <- name
				}
			}()
			synctest.Wait()
		}
		for range 100 {
			flow := &Flow{}
			for range 2 {
				send("much", flow, 500_000)
			}
		}
		little := &Flow{}
		for range 20 {
			send("little", little, 100)
			q.Change(1)
			if got := <-served; got != "little" {
				t.Fatalf("%s was served first", got)
			}
			q.Change(1)
			if got := <-served; got != "much" {
				t.Fatalf("nobody else was served between")
			}
		}
		for range 200 - 20 {
			q.Change(1)
			<-served
		}
	})
}

// Of flows that always wait, none has more served than another by more than the longest requests of the two.
func TestFlowsAreServedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.Int64Range(1, 1000), 2, 6).Draw(t, "costs")
		q := NewQueue(1)
		flows, served := make([]Flow, len(costs)), make([]int64, len(costs))
		hold := &waiter{least: 1}
		if !q.grant(hold) {
			t.Fatal("an empty queue grants nothing")
		}
		waiting := make([]*waiter, len(costs))
		for range 300 {
			for i := range flows {
				if waiting[i] == nil {
					waiting[i] = &waiter{least: 1}
					q.enter(&flows[i], costs[i], waiting[i])
				}
			}
			q.Change(1)
			for i, w := range waiting {
				if w.place < 0 {
					served[i] += costs[i]
					waiting[i] = nil
				}
			}
			for i := range served {
				for j := range served {
					if ahead := served[i] - served[j]; ahead > costs[i]+costs[j] {
						t.Fatalf("of requests of %d, those of flow %d have %v served", costs, i, served)
					}
				}
			}
		}
	})
}

// Requests that give up leave nothing behind, when they wait and when they are served at the same time.
func TestWhoGivesUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(10)
		if _, err := q.Take(t.Context(), 10, 10); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 100)
		for i := range 100 {
			go func() {
				got, err := q.TakeFor(ctx, &Flow{}, int64(i), int64(i%10)+1)
				if err == nil {
					q.Change(got)
				}
				left <- err
			}()
		}
		synctest.Wait()
		if !q.Contended() {
			t.Error("nobody waits")
		}
		cancel()
		q.Change(10)
		for range 100 {
			if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if q.Contended() || q.Used() != 0 {
			t.Error(fmt.Sprint("contended ", q.Contended(), ", used ", q.Used()))
		}
	})
}
