package natsstore

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// replicatedApart checks that what nodes send to keep copies of a log has connections of its own between any two nodes, those of
// the engine's own account: heartbeats are on others, and never wait behind megabytes of records on a slow link.
func replicatedApart(t *testing.T, ns *nodes) {
	const entries, size = 8, 1 << 20
	data := make([]byte, size)
	_, _ = rand.Read(data) // it never fails; the engine compresses what can be
	name, on := "apart", []int32{1, 2, 3}
	ns.log(1, name, on...)
	until.Succeeds(t, "copies are sent over the engine's own connections", func() error {
		before, err := sentByEngines(ns)
		if err != nil {
			return err
		}
		l := ns.log(ns.leader(name), name, on...)
		_, last, err := l.Ends(t.Context())
		if err != nil {
			return err
		}
		for sequence := last + 1; sequence <= last+entries; sequence++ {
			done := make(chan error, 1)
			l.Append(topic.Entry{Sequence: sequence, Mark: topic.Mark{Base: int64(sequence), Next: int64(sequence) + 1}, Data: data}, func(err error) { done <- err })
			if err := <-done; err != nil {
				return err
			}
		}
		after, err := sentByEngines(ns)
		if err != nil {
			return err
		}
		if grown, want := after-before, int64(entries*size); grown < want { // a majority has them: one more node at least
			return fmt.Errorf("%d bytes were sent, want %d or more", grown, want)
		}
		return nil
	})
}

// sentByEngines returns the sum of sentByEngine of all nodes.
func sentByEngines(ns *nodes) (sum int64, err error) {
	for node := range ns.dirs {
		sent, err := sentByEngine(ns.node(int32(node + 1)))
		if err != nil {
			return 0, err
		}
		sum += sent
	}
	return sum, nil
}

// sentByEngine returns the bytes that a node has sent on connections of the engine's own account, or an error if it has none to another
// node, or expects heartbeats on one.
func sentByEngine(s *Store) (sent int64, err error) {
	found, err := s.engine.Routez(&server.RoutezOptions{Subscriptions: true})
	if err != nil {
		return 0, err
	}
	var own, beats []string
	for _, route := range found.Routes {
		heard := slices.Contains(route.Subs, beatSubject)
		switch {
		case route.Account == server.DEFAULT_SYSTEM_ACCOUNT && heard:
			return 0, fmt.Errorf("heartbeats come to %s by the connection of the engine's account", route.RemoteName)
		case route.Account == server.DEFAULT_SYSTEM_ACCOUNT:
			own, sent = append(own, route.RemoteName), sent+route.OutBytes
		case heard:
			beats = append(beats, route.RemoteName)
		}
	}
	if len(own) != 2 || len(beats) != 2 {
		return 0, fmt.Errorf("connections of the engine's account to %v, of heartbeats to %v: want both to two nodes", own, beats)
	}
	return sent, nil
}
