package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStreamPending bounds the unanswered messages. A higher bound is not faster.
const jetStreamPending = 4096

// jetStreamServer is nats-server with a stream for each partition.
type jetStreamServer struct {
	process *process
	folder  string
	conn    *nats.Conn
	js      jetstream.JetStream
	streams int
}

// startJetStream starts a server that fsyncs each message before it answers.
func startJetStream(ctx context.Context, parent, command string) (_ *jetStreamServer, err error) {
	s := &jetStreamServer{}
	self := account{os.Geteuid(), os.Getegid()}
	if s.folder, err = folderFor(parent, "jetstream-", self); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf("listen: %q\njetstream {\n  store_dir: %q\n  sync_interval: always\n}\n", address, s.folder)
	path := filepath.Join(s.folder, "settings")
	if err = os.WriteFile(path, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	if s.process, err = start(ctx, self, s.folder, listens(address), command, "--config", path); err != nil {
		return nil, err
	}
	if s.conn, err = nats.Connect("nats://" + address); err != nil {
		return nil, err
	}
	s.js, err = jetstream.New(s.conn, jetstream.WithPublishAsyncMaxPending(jetStreamPending))
	return s, err
}

func jetStreamName(partition int) string { return fmt.Sprint("records-", partition) }

func (s *jetStreamServer) Line(ctx context.Context, partitions int) (Line, error) {
	subjects := make([]string, partitions)
	for i := range subjects {
		subjects[i] = jetStreamName(i)
		_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: subjects[i], Subjects: subjects[i : i+1], Storage: jetstream.FileStorage, Replicas: 1,
		})
		if err != nil {
			return nil, err
		}
	}
	s.streams = partitions
	l := &jetStreamLine{js: slices.Repeat([]jetstream.JetStream{s.js}, partitions), subjects: subjects, sent: make(chan jetStreamSent, jetStreamPending), ended: make(chan struct{})}
	go l.answer()
	return l, nil
}

func (s *jetStreamServer) Kept(ctx context.Context) (int, error) {
	kept := 0
	for partition := range s.streams {
		stream, err := s.js.Stream(ctx, jetStreamName(partition))
		if err != nil {
			return 0, err
		}
		kept += int(stream.CachedInfo().State.Msgs)
	}
	return kept, nil
}

func (s *jetStreamServer) CPU() (time.Duration, error) { return s.process.cpu() }

func (s *jetStreamServer) Stop() error {
	if s.conn != nil {
		s.conn.Close()
	}
	var err error
	if s.process != nil {
		err = s.process.stop(syscall.SIGKILL)
	}
	return errors.Join(err, removeAll(s.folder))
}

// jetStreamLine publishes with the client's own asynchronous call.
type jetStreamLine struct {
	js       []jetstream.JetStream // by partition, as the subjects
	subjects []string
	sent     chan jetStreamSent
	ended    chan struct{}
}

// jetStreamSent is a message that waits for its answer; one without a future is notified when all
// before it are answered.
type jetStreamSent struct {
	future   jetstream.PubAckFuture
	answered func(error)
}

// answer handles answers in the order of the messages.
func (l *jetStreamLine) answer() {
	defer close(l.ended)
	for sent := range l.sent {
		if sent.future == nil {
			sent.answered(nil)
			continue
		}
		select {
		case <-sent.future.Ok():
			sent.answered(nil)
		case err := <-sent.future.Err():
			sent.answered(err)
		}
	}
}

func (l *jetStreamLine) Send(_ context.Context, partition int, value []byte, answered func(error)) error {
	future, err := l.js[partition].PublishAsync(l.subjects[partition], value, jetstream.WithStallWait(measureWithin))
	if err != nil {
		return err
	}
	l.sent <- jetStreamSent{future, answered}
	return nil
}

func (l *jetStreamLine) Flush(ctx context.Context) error {
	all := make(chan struct{})
	l.sent <- jetStreamSent{answered: func(error) { close(all) }}
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *jetStreamLine) Close() error {
	close(l.sent)
	<-l.ended
	return nil
}
