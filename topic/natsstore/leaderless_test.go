//go:build long

package natsstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// TestWithoutALeaderNothingLooksDeleted cuts all nodes off from each other. The
// engine takes its time to notice.
func TestWithoutALeaderNothingLooksDeleted(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = time.Second })
	l := ns.log(1, "log", 1, 2, 3)
	last := appendUntilTaken(t, l)
	until.True(t, "all nodes have the entries", func() bool {
		known, err := ns.node(1).Cluster().Replicas(t.Context(), "log")
		return err == nil && len(known.Current) == 3
	})
	for node := range int32(3) {
		ns.cut(node+1, true)
	}
	until.True(t, "nobody leads", func() bool {
		for node := range int32(3) {
			if ns.node(node + 1).Cluster().Leads("log") {
				return false
			}
		}
		return true
	})
	s := ns.node(1)
	until.Succeeds(t, "read from this node's own replica", func() error {
		got, err := l.Read(t.Context(), 1, 1<<20)
		if err == nil && uint64(len(got)) != last {
			err = fmt.Errorf("%d entries", len(got))
		}
		return err
	})
	_, _, ends := l.Ends(t.Context())
	_, open := s.OpenLog(t.Context(), "another", []int32{1})
	_, replicas := s.Cluster().Replicas(t.Context(), "none")
	_, place := s.Cluster().Place(t.Context(), "log", []int32{1, 2})
	for call, err := range map[string]error{
		"ends": ends, "open": open, "append": <-send(l, last+1), "trim": l.Trim(t.Context(), 2), "replicas": replicas, "place": place,
		"delete": s.DeleteLog(t.Context(), "log"),
	} {
		if err == nil || errors.Is(err, topic.ErrNoLog) || errors.Is(err, topic.ErrFenced) {
			t.Errorf("%s: %v", call, err)
		}
	}
	for node := range int32(3) {
		ns.cut(node+1, false)
	}
	ns.waitAlive(3)
	// The log may be deleted now: a request without an answer may arrive later.
	until.True(t, "a log again", func() bool {
		_, err := ns.node(1).OpenLog(t.Context(), "log", []int32{1, 2, 3})
		return err == nil
	})
}
