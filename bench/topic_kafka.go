package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recordsTopic is the topic that measures produce to.
const recordsTopic = "records"

// kafkaServer is a broker with the Kafka protocol.
type kafkaServer struct {
	process *process
	folder  string
	address string
	// again starts the process again, on the data in the folder.
	again func(context.Context) (*process, error)
	// producer are the options of producers.
	producer []kgo.Opt
}

// startKafka starts a broker's command: args gets the folder for its files and
// the address to listen at.
func (e *Environment) startKafka(ctx context.Context, command string, args func(folder, address string) []string, producer []kgo.Opt) (_ *kafkaServer, err error) {
	s := &kafkaServer{producer: producer}
	self := account{os.Geteuid(), os.Getegid()}
	if s.folder, err = folderFor(e.folder, filepath.Base(command)+"-", self); err != nil {
		return nil, err
	}
	if s.address, err = freeAddress(ctx); err != nil {
		return nil, errors.Join(err, removeAll(s.folder))
	}
	s.again = func(ctx context.Context) (*process, error) {
		line := append(e.slowSync(), append([]string{command}, args(s.folder, s.address)...)...)
		return start(ctx, self, s.folder, listens(s.address), line[0], line[1:]...)
	}
	if s.process, err = s.again(ctx); err != nil {
		return nil, errors.Join(err, removeAll(s.folder))
	}
	return s, nil
}

// slowSync returns what begins the command line of a process whose fsyncs are to take longer. The tracer is a grandchild, so that the process
// is the one that was started, and only fsyncs stop for it.
func (e *Environment) slowSync() []string {
	if e.SlowSync == 0 {
		return nil
	}
	syncs := fmt.Sprintf("--inject=fsync,fdatasync:delay_enter=%d", e.SlowSync.Microseconds())
	return []string{"strace", "-D", "-f", "--seccomp-bpf", "--quiet=all", "--trace=fsync,fdatasync", "--output=/dev/null", syncs}
}

// client returns a client of franz-go.
func (s *kafkaServer) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.address), kgo.RecordPartitioner(kgo.ManualPartitioner())}, options...)...)
}

// create creates a topic.
func (s *kafkaServer) create(ctx context.Context, topic string, partitions int, settings map[string]string) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	configs := map[string]*string{}
	for name, value := range settings {
		configs[name] = &value
	}
	_, err = kadm.NewClient(client).CreateTopic(ctx, int32(partitions), 1, configs, topic)
	return err
}

// shareFromStart makes a share group begin at the first record.
func (s *kafkaServer) shareFromStart(ctx context.Context, group string) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: group, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{config},
	}}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Resources[0].ErrorCode)
}

func (s *kafkaServer) Line(ctx context.Context, partitions int) (Line, error) {
	if err := s.create(ctx, recordsTopic, partitions, nil); err != nil {
		return nil, err
	}
	client, err := s.client(s.producer...)
	if err != nil {
		return nil, err
	}
	return &kafkaLine{client: client, topic: recordsTopic}, nil
}

func (s *kafkaServer) Kept(ctx context.Context) (int, error) { return s.kept(ctx, recordsTopic) }

func (s *kafkaServer) kept(ctx context.Context, topic string) (int, error) {
	client, err := s.client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	offsets, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	kept := 0
	offsets.Each(func(o kadm.ListedOffset) { kept += int(o.Offset) })
	return kept, offsets.Error()
}

// restart kills the process and starts it again on the same files.
func (s *kafkaServer) restart(ctx context.Context) (err error) {
	if err := s.process.stop(syscall.SIGKILL); err != nil {
		return err
	}
	s.process, err = s.again(ctx)
	return err
}

func (s *kafkaServer) CPU() (time.Duration, error) { return s.process.cpu() }

func (s *kafkaServer) Stop() error {
	return errors.Join(s.process.stop(syscall.SIGKILL), removeAll(s.folder))
}

// kafkaLine produces with franz-go.
type kafkaLine struct {
	client *kgo.Client
	topic  string
	// spare are records that are allocated together: one by one they would cost more than the rest
	// of sending.
	spare []kgo.Record
}

func (l *kafkaLine) Send(ctx context.Context, partition int, value []byte, answered func(error)) error {
	if len(l.spare) == 0 {
		l.spare = make([]kgo.Record, 1024)
	}
	record := &l.spare[0]
	l.spare = l.spare[1:]
	record.Topic, record.Partition, record.Value = l.topic, int32(partition), value
	l.client.Produce(ctx, record, func(_ *kgo.Record, err error) { answered(err) })
	return ctx.Err()
}

func (l *kafkaLine) Flush(ctx context.Context) error { return l.client.Flush(ctx) }

func (l *kafkaLine) Close() error {
	l.client.Close()
	return nil
}

// consumed is the result of consuming.
type consumed struct {
	Rate
	// Bytes is the size of the answers to fetches.
	Bytes int64
}

// consume reads a topic from its start, until it has the given number of records. Those of a
// partition must come in the order of their offsets and, unless gaps are allowed, as in a view,
// with none missing. see is called with each.
func (s *kafkaServer) consume(ctx context.Context, topic string, records int, gaps bool, see func(*kgo.Record)) (c consumed, err error) {
	counter := &fetchCounter{}
	began := time.Now()
	client, err := s.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.WithHooks(counter))
	if err != nil {
		return c, err
	}
	defer client.Close()
	after := map[int32]int64{}
	for c.Jobs < records {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return c, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if next := after[r.Partition]; r.Offset < next || r.Offset > next && !gaps {
				err = fmt.Errorf("partition %d: offset %d came where %d should", r.Partition, r.Offset, next)
			}
			after[r.Partition] = r.Offset + 1
			if see != nil {
				see(r)
			}
		})
		c.Jobs += fetches.NumRecords()
		if err != nil {
			return c, err
		}
	}
	c.Took, c.Bytes = time.Since(began), counter.bytes.Load()
	return c, checkDone(c.Jobs, records)
}
