package natsstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/topic"
)

// Of requests to the engine of a cluster. One is answered by the leader of what it
// is about; while there is none, by nobody or with an error, and what was sent
// before there is one is lost.
const (
	attemptMin = 500 * time.Millisecond // how long the first may take
	attemptMax = 4 * time.Second        // and the later ones
	pauseMin   = 20 * time.Millisecond  // after one that was refused
	pauseMax   = 500 * time.Millisecond
)

// errNoLeader says that nobody answers who knows a log: it has no leader now.
var errNoLeader = errors.New("it has no leader now")

// errOutdated says that who answered does not have what a log is known to have.
var errOutdated = errors.New("who answered was deposed")

// attempts calls do until it succeeds, fails for good, or ctx ends, for a longer time
// each. A store of one node calls it once.
func (s *Store) attempts(ctx context.Context, do func(ctx context.Context) error) error {
	if s.cluster == nil {
		return do(ctx)
	}
	limit := attemptMin
	return tries(ctx, func(ctx context.Context) error {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		limit = min(2*limit, attemptMax)
		return do(attempt)
	})
}

// tries is attempts, in a cluster, for what looks itself whether it is answered.
func tries(ctx context.Context, do func(ctx context.Context) error) error {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		err := do(ctx)
		if err == nil || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoLeader, err)
		case <-time.After(pause):
		}
	}
}

// again tells whether a request that failed may succeed later.
func again(err error) bool {
	for _, passing := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrConnectionReconnecting,
		jetstream.ErrNoStreamResponse, errNoLeader, errOutdated, errHole, errUnanswered,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	code := codeOf(err)
	switch server.ErrorIdentifier(code) {
	case server.JSClusterNotAvailErr, server.JSClusterNotLeaderErr, server.JSClusterNotAssignedErr, server.JSStreamOfflineErr,
		server.JSClusterNoPeersErrF, server.JSClusterServerMemberChangeInflightErr, server.JSNotEnabledForAccountErr:
		return true
	}
	return false
}

// codeOf returns the number of an error of the engine, 0 for others.
func codeOf(err error) int {
	var ours *server.ApiError
	var theirs *jetstream.APIError
	switch {
	case errors.As(err, &ours):
		return int(ours.ErrCode)
	case errors.As(err, &theirs):
		return int(theirs.ErrorCode)
	}
	return 0
}

// info asks for a stream, until somebody answers.
func (s *Store) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	found, err := s.find(ctx, stream)
	if err != nil {
		return nil, err
	}
	return found.CachedInfo(), nil
}

// find asks for a stream. Only who leads it is believed: a replica that knows no
// leader answers too, and what it says of the stream's end may be out of date.
func (s *Store) find(ctx context.Context, name string) (stream jetstream.Stream, err error) {
	err = s.attempts(ctx, func(ctx context.Context) error {
		if stream, err = s.js.Stream(ctx, name); err != nil {
			return s.confirm(ctx, name, err)
		}
		if s.cluster != nil && !saidByLeader(stream.CachedInfo().Cluster) {
			return errNoLeader
		}
		return nil
	})
	return stream, err
}

// saidByLeader tells whether what a replica says of its stream's replicas is said by
// their leader. It lists all but itself, and itself too if it knows no leader. One
// that hears of a leader while it answers names it, and does not list itself.
func saidByLeader(cluster *jetstream.ClusterInfo) bool {
	return cluster != nil && cluster.Leader != "" &&
		!slices.ContainsFunc(cluster.Replicas, func(other *jetstream.PeerInfo) bool { return other.Name == cluster.Leader })
}

// confirm makes sure that a stream of which a node says so does not exist: one
// that has not got it yet, or is stopping, says so too. Who leads the engine's
// metadata knows.
func (s *Store) confirm(ctx context.Context, name string, err error) error {
	if s.cluster == nil || !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	subject := metaSubject
	if name != metaStream {
		subject = logSubject + name[len(logStream):]
	}
	list := s.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
	for found := range list.Name() {
		if found == name {
			return errNoLeader
		}
	}
	if failed := list.Err(); failed != nil {
		return fmt.Errorf("%w: %w", errNoLeader, failed)
	}
	return err
}

// unknown tells whether a write that was refused because of its stream, in a
// cluster, may only have come while that had no leader.
func (s *Store) unknown(err error) error {
	if s.cluster != nil && errors.Is(err, topic.ErrNoLog) {
		return fmt.Errorf("%w: %w", topic.ErrUncertain, errNoLeader)
	}
	return err
}
