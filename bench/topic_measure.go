package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Stream describes the produced records.
type Stream struct {
	// Bytes is the size of each record's value, Partitions how many partitions take turns.
	Bytes, Partitions int
	// For is how long records are sent.
	For time.Duration
}

// partitionRun is how many records in a row go to one partition.
const partitionRun = 64

// serve starts a broker, calls f with it and stops it.
func serve(ctx context.Context, broker Broker, f func(context.Context, Server) error) error {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	server, err := broker.Start(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", broker.Name, err)
	}
	if err := touchMemory(); err != nil {
		return errors.Join(err, server.Stop())
	}
	syscall.Sync()
	if err = errors.Join(f(ctx, server), server.Stop()); err != nil {
		return fmt.Errorf("%s: %w", broker.Name, err)
	}
	return nil
}

// touchMost bounds the memory that is touched: more than a measure of records takes for the files' cache.
const touchMost = 6 << 30

// touchMemory takes half of the free memory and gives it back. A virtual machine has returned to its host what was free for a while, and whoever
// uses it first waits for it, six times as long as a copy takes: without this, the first broker did so for all.
func touchMemory() error {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return err
	}
	bytes := min(machine.Freeram*uint64(machine.Unit)/2, touchMost)
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("%d bytes of memory: %w", bytes, err)
	}
	return unix.Munmap(memory)
}

// Produced is the measurement of Produce.
type Produced struct {
	// Sent is from the first record that is sent until the last is answered.
	Sent Rate
	// Read is of the same records, from the start of a new consumer; zero
	// unless it was asked for.
	Read Rate
	// SentCPU and ReadCPU are the processor time of the broker for each, ClientCPU that of this process for Sent.
	SentCPU, ReadCPU, ClientCPU time.Duration
	// Peak is the maximum of the broker's resident set until the end, in bytes; zero unless
	// the records were read.
	Peak int64
}

// PerMillion returns a time per million records.
func (r Rate) PerMillion(cpu time.Duration) time.Duration {
	return time.Duration(float64(cpu) / float64(r.Jobs) * 1e6)
}

// Produce measures records that are sent as fast as the broker accepts them. With read, which only
// Kafka brokers support, they are then consumed from the start.
func Produce(ctx context.Context, broker Broker, stream Stream, read bool) (produced Produced, err error) {
	err = serve(ctx, broker, func(ctx context.Context, server Server) error {
		before, err := server.CPU()
		if err != nil {
			return err
		}
		clientBefore, err := cpuOf(os.Getpid())
		if err != nil {
			return err
		}
		if produced.Sent, err = produce(ctx, server, stream); err != nil {
			return err
		}
		clientAfter, err := cpuOf(os.Getpid())
		if err != nil {
			return err
		}
		after, err := server.CPU()
		produced.SentCPU, produced.ClientCPU = after-before, clientAfter-clientBefore
		if err != nil || !read {
			return err
		}
		kafka, ok := server.(*kafkaServer)
		if !ok {
			return errors.New("is not read here: it does not speak Kafka")
		}
		c, err := kafka.consume(ctx, recordsTopic, produced.Sent.Jobs, false, nil)
		if err != nil {
			return err
		}
		produced.Read = c.Rate
		atEnd, err := server.CPU()
		produced.ReadCPU = atEnd - after
		if err != nil {
			return err
		}
		used, err := memoryOf(strconv.Itoa(kafka.process.command.Process.Pid))
		produced.Peak = used.Peak
		return err
	})
	return produced, err
}

// firstError keeps the first error of the answers.
type firstError struct{ err atomic.Pointer[error] }

func (f *firstError) set(err error) {
	if err != nil {
		f.err.CompareAndSwap(nil, &err)
	}
}

func (f *firstError) get() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func produce(ctx context.Context, server Server, stream Stream) (sent Rate, err error) {
	line, err := server.Line(ctx, stream.Partitions)
	if err != nil {
		return sent, err
	}
	var (
		failed   firstError
		value    = Values(stream.Bytes)
		answered = failed.set
	)
	began := time.Now()
	for n := 0; failed.get() == nil; n++ {
		// The clock is read rarely: a million times per second would cost time.
		if n > 0 && n%partitionRun == 0 && time.Since(began) >= stream.For {
			break
		}
		if err = line.Send(ctx, n/partitionRun%stream.Partitions, value(n), answered); err != nil {
			break
		}
		sent.Jobs++
	}
	if err == nil {
		err = line.Flush(ctx)
	}
	sent.Took = time.Since(began)
	if err = errors.Join(err, line.Close(), failed.get()); err != nil {
		return sent, err
	}
	return sent, checkKept(ctx, server, sent.Jobs)
}
