package natsstore

import (
	"testing"
	"time"
)

// TestDroppedAppends has appends that the engine never gets: they are sent again, in
// their order, with those after them that were refused.
func TestDroppedAppends(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, nil)
	ns.open(1, "log", 1, 2, 3)
	l := ns.open(ns.leader("log")%3+1, "log")
	last := uint64(0)
	for _, dropped := range []int{1, 3} {
		var outcomes []<-chan error
		for range dropped {
			last++
			outcome := make(chan error, 1)
			if _, err := l.enter(time.Now(), numbered(last), func(err error) { outcome <- err }); err != nil {
				t.Fatal(err)
			}
			outcomes = append(outcomes, outcome)
		}
		for range 2 {
			last++
			outcomes = append(outcomes, appended(l, last))
		}
		for i, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Errorf("append %d of %d, the first %d of which were dropped: %v", i+1, len(outcomes), dropped, err)
			}
		}
	}
	checkNumbered(t, l, last)
}

// TestAppendsSentTwice sends again what was not dropped.
func TestAppendsSentTwice(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, nil)
	ns.open(1, "log", 1, 2, 3)
	l := ns.open(ns.leader("log")%3+1, "log")
	for last := uint64(1); last <= 100; last += 10 {
		var outcomes []<-chan error
		for i := range uint64(10) {
			outcomes = append(outcomes, appended(l, last+i))
		}
		l.resend(time.Now().Add(resendAfter))
		for i, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Errorf("append %d: %v", last+uint64(i), err)
			}
		}
	}
	checkNumbered(t, l, 100)
}

// TestAppendsWhileReplicasChange gives logs their first other replicas, and takes
// them away, under load: in that moment the engine drops appends. None fails.
func TestAppendsWhileReplicasChange(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, nil)
	l := ns.open(1, "log", 1)
	over, last := make(chan struct{}), make(chan uint64, 1)
	go func() {
		sequence := uint64(0)
		defer func() { last <- sequence }()
		for {
			sequence++
			if err := <-appended(l, sequence); err != nil {
				t.Errorf("append %d: %v", sequence, err)
				return
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	for range 3 {
		for _, on := range [][]int32{{1, 2, 3}, {1}} {
			eventually(t, "the replicas have changed", func() bool {
				placed, err := ns.node(1).cluster.Place(t.Context(), "log", on)
				return err == nil && placed
			})
		}
	}
	close(over)
	checkNumbered(t, l, <-last)
}
