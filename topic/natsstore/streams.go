package natsstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/topic"
)

// A server that keeps warnStreams streams or more makes and recovers them slowly. It warns then,
// and again with warnAgain more.
const (
	warnStreams = 1000
	warnAgain   = 100
)

// OpenLog returns the log of that name. If it does not exist, OpenLog makes it, in a
// cluster on the given 1 to 5 nodes; without nodes the error is topic.ErrNoLog, so that a
// log that was lost is never taken for a new one. All calls with one name return the same log until it is deleted.
func (s *Store) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	return s.MakeLog(ctx, name, nodes, 1)
}

// MakeLog is OpenLog, but for a log that does not exist: its first entry will have
// the sequence first.
func (s *Store) MakeLog(ctx context.Context, name string, nodes []int32, first uint64) (topic.Log, error) {
	if !validName(name) {
		return nil, fmt.Errorf("log name %q: want 1 to 200 letters, digits, - and _", name)
	}
	done, err := s.begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer done()
	if l := s.opened(ctx, name); l != nil {
		return l, nil
	}
	config, err := s.logConfig(name, nodes)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", name, err)
	}
	config.FirstSeq = first
	ctx, cancel := s.bound(ctx)
	defer cancel()
	stream, err := s.stream(ctx, config)
	if err != nil {
		return nil, s.failure(fmt.Errorf("open log %s: %w", name, err))
	}
	if err := s.probe(ctx, config.Subjects[0]); err != nil {
		return nil, s.failure(fmt.Errorf("open log %s: %w", name, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, topic.ErrClosed
	}
	l := s.register(name, logSubject+name, stream)
	s.logs[name] = l
	return l, nil
}

// begin waits until no other call opens, makes or deletes the log of that name. The caller calls
// done when its own work on it has ended.
func (s *Store) begin(ctx context.Context, name string) (done func(), err error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, topic.ErrClosed
		}
		other := s.busy[name]
		if other == nil {
			own := make(chan struct{})
			s.busy[name] = own
			s.mu.Unlock()
			return func() { s.end(name, own) }, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Store) end(name string, own chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, name)
	close(own)
}

// opened returns the open log of that name, nil if there is none or, in a cluster, another
// node has deleted it.
func (s *Store) opened(ctx context.Context, name string) *log {
	s.mu.RLock()
	l := s.logs[name]
	s.mu.RUnlock()
	if l == nil || s.cluster == nil {
		return l
	}
	if _, _, err := l.Ends(ctx); errors.Is(err, topic.ErrNoLog) {
		return nil
	}
	return l
}

// logConfig returns the settings of a new log's stream that differ between logs.
func (s *Store) logConfig(name string, nodes []int32) (jetstream.StreamConfig, error) {
	config := jetstream.StreamConfig{
		Name: logStream + name, Subjects: []string{logSubject + name}, Discard: jetstream.DiscardNew,
	}
	config.Replicas = len(nodes)
	if len(nodes) == 0 {
		return config, nil // the log must exist
	}
	if s.cluster == nil {
		config.Replicas = 1
		return config, nil
	}
	if placement := s.cluster.placementOn(nodes); len(placement.Tags) > 0 {
		config.Placement = placement
	}
	return config, checkNodes(nodes)
}

// stream returns the stream of that name, and makes it if it does not exist, with the
// settings that all streams share. The caller is Open or has begun with that name.
func (s *Store) stream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.await(ctx, config.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	if config.Name != metaStream && config.Replicas == 0 {
		return nil, err
	}
	if config.Name == metaStream {
		if err := s.isNew(ctx); err != nil {
			return nil, err
		}
	}
	config.Storage, config.AllowDirect = jetstream.FileStorage, true
	// No message has an id to find duplicates by, so the window is the shortest.
	config.Duplicates = 100 * time.Millisecond
	config.MaxMsgs, config.MaxBytes, config.MaxMsgSize = -1, -1, -1
	if s.cluster != nil && config.Name == metaStream {
		s.cluster.awaitKeepers(ctx)
	}
	err = s.retry(ctx, func(ctx context.Context) error {
		stream, err = s.create(ctx, config)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// isNew returns an error if there are logs: then the metadata, which is missing, was lost, and
// must not be made again, empty.
func (s *Store) isNew(ctx context.Context) error {
	var logs []string
	err := s.retry(ctx, func(ctx context.Context) error {
		names := s.js.StreamNames(ctx)
		logs = logs[:0]
		for name := range names.Name() {
			logs = append(logs, name)
		}
		return names.Err()
	})
	if err == nil && len(logs) > 0 && !slices.Contains(logs, metaStream) { // another node may just have made it
		err = &MetaMissingError{Logs: len(logs), Example: logs[0]}
	}
	return err
}

// MetaMissingError says that the metadata is missing or damaged, and that there are logs.
type MetaMissingError struct {
	// Logs is the number of streams that there are; Example is one of them.
	Logs    int
	Example string
}

func (e *MetaMissingError) Error() string {
	return fmt.Sprintf("the metadata, stream %s, is missing or damaged, and there are %d logs, such as %s: restore the data directory from a backup", metaStream, e.Logs, e.Example)
}

// probe waits, in a cluster, until messages from this node reach the log's leader, which
// this node may not know yet. The leader refuses the probe for its sequence.
func (s *Store) probe(ctx context.Context, subject string) error {
	if s.cluster == nil {
		return nil
	}
	message := nats.NewMsg(subject)
	message.Header.Set(server.JSExpectedLastSeq, strconv.FormatUint(math.MaxInt64, 10))
	return s.retry(ctx, func(ctx context.Context) error {
		_, err := s.conn.RequestMsgWithContext(ctx, message)
		return err
	})
}

// await returns a stream. It waits for the metadata until ctx ends, and logs that it does.
func (s *Store) await(ctx context.Context, name string) (jetstream.Stream, error) {
	for {
		within, cancel := context.WithTimeout(ctx, s.options.Timeout)
		stream, err := s.find(within, name)
		cancel()
		if !errors.Is(err, errNoLeader) || name != metaStream || ctx.Err() != nil {
			return stream, err
		}
		s.options.Logger.Warn("topic store: waiting for the nodes that keep the metadata", "error", err)
	}
}

// create makes a stream. Another node may have made it at the same time, with other settings.
func (s *Store) create(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if config.Name == metaStream {
		config.Replicas = 1
		if s.cluster != nil {
			config.Replicas = metaReplicas(len(s.cluster.Alive()))
		}
	}
	stream, err := s.js.CreateStream(ctx, config)
	if s.cluster != nil && errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return s.find(ctx, config.Name)
	}
	return stream, err
}

// warnOfStreams warns of many streams on this server, if there are warnAgain more than at the
// last warning. It returns their number then.
func (s *Store) warnOfStreams(warned int) int {
	kept, _ := os.ReadDir(s.streamsDir()) // without streams there is none
	if len(kept) < max(warnStreams, warned+warnAgain) {
		return warned
	}
	s.options.Logger.Warn("topic store: this server keeps many logs: opening the store and making partitions becomes slow",
		"logs", len(kept), "advised", warnStreams)
	return len(kept)
}

// streamsDir is the engine's directory of all streams that this server keeps.
func (s *Store) streamsDir() string {
	return filepath.Join(s.disk.dir, server.JetStreamStoreDir, account, "streams")
}

// Logs returns the names of all logs.
func (s *Store) Logs(ctx context.Context) ([]string, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var names []string
	streams := s.js.StreamNames(ctx)
	for stream := range streams.Name() {
		if name, ok := strings.CutPrefix(stream, logStream); ok {
			names = append(names, name)
		}
	}
	return names, streams.Err()
}

// Revision returns a revision of the metadata that is not below any that was given.
func (s *Store) Revision() uint64 {
	s.meta.mu.RLock()
	defer s.meta.mu.RUnlock()
	return s.meta.state.last
}

// DeleteLog removes a log and its entries.
func (s *Store) DeleteLog(ctx context.Context, name string) error {
	if !validName(name) {
		return nil
	}
	done, err := s.begin(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	s.forget(name, nil)
	err = s.remove(ctx, logStream+name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return s.failure(fmt.Errorf("delete log %s: %w", name, err))
	}
	return nil
}

// remove deletes a stream. The engine renames the directory of a deleted stream and
// empties it in the background. If a stream of the same name is deleted before that has
// ended, the rename fails, and the next stream of that name begins with the old entries:
// so remove ends that work first.
func (s *Store) remove(ctx context.Context, stream string) error {
	if err := os.RemoveAll(filepath.Join(s.streamsDir(), "."+stream)); err != nil {
		return err
	}
	if s.cluster == nil {
		return s.js.DeleteStream(ctx, stream)
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.retry(ctx, func(ctx context.Context) error { return s.js.DeleteStream(ctx, stream) })
}

// forget ends the log of that name; if which is not nil, only if it is that one.
func (s *Store) forget(name string, which *log) {
	s.mu.Lock()
	l := s.logs[name]
	if l == nil || which != nil && l != which {
		s.mu.Unlock()
		return
	}
	delete(s.logs, name)
	delete(s.tokens, l.token)
	s.mu.Unlock()
	l.end(topic.ErrNoLog)
	l.abandon(topic.ErrNoLog)
}
