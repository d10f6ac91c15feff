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

// Requests to the engine of a cluster are repeated: only the leader of a stream answers
// for it, and requests sent while there is no leader are lost or refused.
const (
	attemptMin = 500 * time.Millisecond // timeout of the first attempt
	attemptMax = 4 * time.Second        // and of later ones
	pauseMin   = 20 * time.Millisecond  // backoff after a failed attempt
	pauseMax   = 500 * time.Millisecond
)

// errNoLeader says that a stream has no leader at the moment.
var errNoLeader = errors.New("it has no leader now")

// errStale says that the node that answered lacks entries that the log has.
var errStale = errors.New("the answer came from a former leader")

// retry calls do until it succeeds, fails with an error that is not transient, or ctx
// ends, with a longer timeout each time. A store of one node calls it once.
func (s *Store) retry(ctx context.Context, do func(ctx context.Context) error) error {
	if s.cluster == nil {
		return do(ctx)
	}
	limit := attemptMin
	return retry(ctx, func(ctx context.Context) error {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		limit = min(2*limit, attemptMax)
		return do(attempt)
	})
}

// retry is Store.retry for a cluster and without timeouts.
func retry(ctx context.Context, do func(ctx context.Context) error) error {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		err := do(ctx)
		if err == nil || !isTransient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoLeader, err)
		case <-time.After(pause):
		}
	}
}

// isTransient reports whether a request that failed may succeed later.
func isTransient(err error) bool {
	for _, passing := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrConnectionReconnecting,
		jetstream.ErrNoStreamResponse, errNoLeader, errStale, errGap, errTimeout,
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

// codeOf returns the code of an error of the engine, 0 for other errors.
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

// info returns a stream's state, as its leader has it.
func (s *Store) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	found, err := s.find(ctx, stream)
	if err != nil {
		return nil, err
	}
	return found.CachedInfo(), nil
}

// find returns a stream. It accepts the leader's answer only: a replica that knows no
// leader answers too, and its view of the stream's end may be out of date.
func (s *Store) find(ctx context.Context, name string) (stream jetstream.Stream, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
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

// saidByLeader reports whether a list of a stream's replicas comes from their leader. A
// replica lists all others, and itself if it knows no leader. If it learns of a leader
// while it answers, it names the leader and does not list itself.
func saidByLeader(cluster *jetstream.ClusterInfo) bool {
	return cluster != nil && cluster.Leader != "" &&
		!slices.ContainsFunc(cluster.Replicas, func(other *jetstream.PeerInfo) bool { return other.Name == cluster.Leader })
}

// confirm asks the leader of the engine's metadata whether a stream that a node does not
// have exists. A node that is behind or stopping has not all streams.
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

// withoutLeader returns ErrUncertain for a write that a cluster refused with ErrNoLog: the
// stream may only have had no leader.
func (s *Store) withoutLeader(err error) error {
	if s.cluster != nil && errors.Is(err, topic.ErrNoLog) {
		return fmt.Errorf("%w: %w", topic.ErrUncertain, errNoLeader)
	}
	return err
}
