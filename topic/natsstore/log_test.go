package natsstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// patience is the timeout of waits.
const patience = until.Limit

func openStore(t *testing.T, options Options) *Store {
	t.Helper()
	options.Logger = slog.New(slog.DiscardHandler)
	s, err := Open(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openLog(t *testing.T, s *Store) *log {
	t.Helper()
	l, err := s.OpenLog(t.Context(), "log", []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	return l.(*log)
}

// send appends entries with these sequences, and returns the channel of their outcomes.
func send(l *log, sequences ...uint64) chan error {
	outcomes := make(chan error, len(sequences))
	for _, sequence := range sequences {
		l.Append(topic.Entry{Sequence: sequence, Data: []byte("data")}, func(err error) { outcomes <- err })
	}
	return outcomes
}

// wantOutcomes checks the outcomes of appends, nil for success.
func wantOutcomes(t *testing.T, outcomes chan error, want ...error) {
	t.Helper()
	for i, want := range want {
		select {
		case err := <-outcomes:
			if !errors.Is(err, want) {
				t.Fatalf("append %d: %v, want %v", i, err, want)
			}
		case <-time.After(patience):
			t.Fatalf("append %d is not reported", i)
		}
	}
}

// TestLostAnswers drops the answers to some appends.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	l := openLog(t, s)
	wantOutcomes(t, send(l, 1), nil)
	s.options.Timeout = time.Second // nothing is in flight that reads it
	s.mu.Lock()
	delete(s.tokens, l.token)
	s.mu.Unlock()
	wantOutcomes(t, send(l, 2, 3, 9), topic.ErrUncertain, topic.ErrUncertain, topic.ErrUncertain)
	s.options.Timeout = time.Minute
	s.mu.Lock()
	s.tokens[l.token] = l
	s.mu.Unlock()
	// Wait reads the log's end.
	if err := l.Wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if first, last, err := l.Ends(t.Context()); first != 1 || last != 3 || err != nil {
		t.Fatalf("ends are %d and %d: %v", first, last, err)
	}
	wantOutcomes(t, send(l, 2), topic.ErrFenced)
	wantOutcomes(t, send(l, 4, 5), nil, nil)
}

// TestBehindAFailure appends an entry that is written, behind one that is fenced, with both
// in flight when the failure is found.
func TestBehindAFailure(t *testing.T) {
	l := openLog(t, openStore(t, Options{}))
	hold := make(chan struct{})
	l.Append(topic.Entry{Sequence: 1}, func(error) { <-hold })
	outcomes := send(l, 9, 2, 3)
	close(hold)
	wantOutcomes(t, outcomes, topic.ErrFenced, topic.ErrUncertain, topic.ErrUncertain)
	if _, last, err := l.Ends(t.Context()); last != 3 || err != nil {
		t.Fatalf("the last is %d: %v", last, err)
	}
	wantOutcomes(t, send(l, 4), nil)
}

// TestRefusedBeforeItIsSent appends an entry that is too large between others.
func TestRefusedBeforeItIsSent(t *testing.T) {
	l := openLog(t, openStore(t, Options{}))
	outcomes := make(chan error, 3)
	done := func(err error) { outcomes <- err }
	l.Append(topic.Entry{Sequence: 1}, done)
	l.Append(topic.Entry{Sequence: 2, Data: make([]byte, MaxEntryBytes+1)}, done)
	l.Append(topic.Entry{Sequence: 3}, done)
	var large *EntryTooLargeError
	wantOutcomes(t, outcomes, nil)
	if err := <-outcomes; !errors.As(err, &large) {
		t.Fatalf("append 2: %v, want EntryTooLargeError", err)
	}
	wantOutcomes(t, outcomes, topic.ErrFenced)
}

// TestDeletedUnderWay deletes a log with appends in flight.
func TestDeletedUnderWay(t *testing.T) {
	s := openStore(t, Options{Timeout: time.Minute})
	l := openLog(t, s)
	s.mu.Lock()
	delete(s.tokens, l.token)
	s.mu.Unlock()
	outcomes := send(l, 1, 2)
	if err := s.DeleteLog(t.Context(), "log"); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes, topic.ErrNoLog, topic.ErrNoLog)
}

// TestLostConnections cuts the connections to the engine.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Timeout: 2 * time.Second})
	l := openLog(t, s)
	wantOutcomes(t, send(l, 1), nil)
	for round := range 2 {
		cut := 0
		for _, conn := range append(slices.Clone(s.reader.conns), s.conn) {
			id, err := conn.GetClientID()
			if err != nil {
				t.Fatal(err)
			}
			// One that is not back since the last round is unknown to the engine.
			if s.engine.DisconnectClientByID(id) == nil {
				cut++
			}
		}
		if cut == 0 {
			t.Fatal("no connection was cut")
		}
		appendUntilTaken(t, l)
		put(t, s.Meta(), fmt.Sprint("key", round), "value", 0)
	}
}

// appendUntilTaken appends and reads until both succeed, as a caller does after failures, and
// returns the log's end.
func appendUntilTaken(t *testing.T, l *log) (last uint64) {
	t.Helper()
	until.Succeeds(t, "append and read", func() (err error) {
		if _, last, err = l.Ends(t.Context()); err != nil {
			return err
		}
		if err := <-send(l, last+1); err != nil {
			if !errors.Is(err, topic.ErrUncertain) && !errors.Is(err, topic.ErrFenced) {
				t.Fatalf("append: %v", err)
			}
			return err
		}
		got, err := l.Read(t.Context(), last+1, 1)
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d entries are read, want 1", len(got))
		}
		last++
		return err
	})
	return last
}

// TestErrorsOfTheEngine checks that each code maps to one of topic's errors.
func TestErrorsOfTheEngine(t *testing.T) {
	for code, want := range map[server.ErrorIdentifier]error{
		server.JSStreamWrongLastSequenceErrF:    topic.ErrFenced,
		server.JSStreamTooManyRequests:          topic.ErrFenced,
		server.JSInsufficientResourcesErr:       topic.ErrFull,
		server.JSAccountResourcesExceededErr:    topic.ErrFull,
		server.JSStorageResourcesExceededErr:    topic.ErrFull,
		server.JSStreamNotFoundErr:              topic.ErrNoLog,
		server.JSClusterNotAvailErr:             topic.ErrUncertain,
		server.JSStreamMessageExceedsMaximumErr: topic.ErrUncertain,
	} {
		if got := sentinelOf(int(code)); !errors.Is(got, want) {
			t.Errorf("code %d is %v, want %v", code, got, want)
		}
	}
}

// TestManyLogsAreWarnedOf pretends that this server keeps many; those of other nodes do not count.
func TestManyLogsAreWarnedOf(t *testing.T) {
	s := openStore(t, Options{})
	var text bytes.Buffer
	s.options.Logger = slog.New(slog.NewTextHandler(&text, nil))
	kept, warned := 1, 0 // the metadata
	for _, step := range []struct {
		streams int
		want    bool
	}{{warnStreams - 1, false}, {warnStreams, true}, {warnStreams + warnAgain - 1, false}, {warnStreams + warnAgain, true}} {
		for ; kept < step.streams; kept++ {
			if err := os.Mkdir(filepath.Join(s.streamsDir(), fmt.Sprint("many", kept)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		text.Reset()
		warned = s.warnOfStreams(warned)
		if got := strings.Contains(text.String(), "many logs"); got != step.want {
			t.Fatalf("with %d streams the log says %q", step.streams, text.String())
		}
	}
}

// TestOpeningWaitsForNoOtherLog opens a log while the work on another takes long.
func TestOpeningWaitsForNoOtherLog(t *testing.T) {
	s := openStore(t, Options{})
	done, err := s.begin(t.Context(), "slow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenLog(t.Context(), "other", []int32{1}); err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.OpenLog(late, "slow", []int32{1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second call for the same log: %v, want that it waits", err)
	}
	done()
	if _, err := s.OpenLog(t.Context(), "slow", []int32{1}); err != nil {
		t.Fatal(err)
	}
}

// TestCloseEndsReads closes a store with a read that gets no answer.
func TestCloseEndsReads(t *testing.T) {
	s := openStore(t, Options{})
	l := openLog(t, s)
	s.reader.inbox = "nowhere."
	outcome := make(chan error, 1)
	go func() {
		_, err := l.Read(t.Context(), 1, 1)
		outcome <- err
	}()
	until.True(t, "the read has begun", func() bool {
		s.reader.mu.Lock()
		defer s.reader.mu.Unlock()
		return len(s.reader.calls) > 0
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-outcome; !errors.Is(err, topic.ErrClosed) {
		t.Fatalf("read: %v, want ErrClosed", err)
	}
}
