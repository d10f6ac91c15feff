package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Latency is the time from when records were due to be sent until they were answered.
type Latency struct {
	Records     int
	Median, P99 time.Duration
	// Rate is how many were answered per second.
	Rate float64
}

func latencyOf(times []time.Duration, took time.Duration) (l Latency, err error) {
	if len(times) == 0 {
		return l, errors.New("no record was answered")
	}
	slices.Sort(times)
	return Latency{
		Records: len(times), Median: times[len(times)/2], P99: times[len(times)*99/100],
		Rate: float64(len(times)) / took.Seconds(),
	}, nil
}

// OneAtATime measures producers that each send one record of 100 bytes at a time to one partition.
func OneAtATime(ctx context.Context, broker Broker, producers int, d time.Duration) (l Latency, err error) {
	err = serve(ctx, broker, func(ctx context.Context, server Server) error {
		l, err = oneAtATime(ctx, server, producers, d)
		return err
	})
	return l, err
}

func oneAtATime(ctx context.Context, server Server, producers int, d time.Duration) (l Latency, err error) {
	line, err := server.Line(ctx, 1)
	if err != nil {
		return l, err
	}
	lines := []Line{line}
	if kafka, ok := server.(*kafkaServer); ok { // each has a connection of its own
		for range producers - 1 {
			client, err := kafka.client(kafka.producer...)
			if err != nil {
				return l, err
			}
			lines = append(lines, &kafkaLine{client: client, topic: recordsTopic})
		}
	} else if producers > 1 {
		return l, errors.New("has one producer only")
	}
	var (
		wait  sync.WaitGroup
		value = Values(PayloadBytes)
		times = make([][]time.Duration, producers)
		errs  = make([]error, producers)
	)
	for p, line := range lines { // connect before the clock runs
		errs[p] = sendOne(ctx, line, value(p))
	}
	began := time.Now()
	for p, line := range lines {
		wait.Go(func() {
			for n := 0; errs[p] == nil && (n == 0 || time.Since(began) < d); n++ {
				sent := time.Now()
				errs[p] = sendOne(ctx, line, value(n*producers+p))
				times[p] = append(times[p], time.Since(sent))
			}
		})
	}
	wait.Wait()
	took := time.Since(began)
	for _, line := range lines {
		errs = append(errs, line.Close())
	}
	all := slices.Concat(times...)
	if err := errors.Join(append(errs, checkKept(ctx, server, len(all)+producers))...); err != nil {
		return l, err
	}
	return latencyOf(all, took)
}

// sendOne sends a record and waits for its answer.
func sendOne(ctx context.Context, line Line, value []byte) error {
	answer := make(chan error, 1)
	if err := line.Send(ctx, 0, value, func(err error) { answer <- err }); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AtRate measures records of 100 bytes to one partition that are sent at a steady rate,
// independently of the answers: a record's time begins when it is due.
func AtRate(ctx context.Context, broker Broker, perSecond float64, d time.Duration) (l Latency, err error) {
	err = serve(ctx, broker, func(ctx context.Context, server Server) error {
		l, err = atRate(ctx, server, perSecond, d)
		return err
	})
	return l, err
}

// ErrBehind: what is measured, or the machine, cannot keep up with the rate. A latency would have no
// meaning.
var ErrBehind = errors.New("cannot keep up")

// behind bounds how late the rate may run, as a factor.
const behind = 1.2

// warmUp is how long a rate runs before it is measured: connections are opened and the first pages
// of files written.
const warmUp = 500 * time.Millisecond

// measured collects the times of answers; they come from several goroutines.
type measured struct {
	mu    sync.Mutex
	times []time.Duration
	err   error
}

func (m *measured) answered(due time.Time, counts bool, err error) {
	took := time.Since(due)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.err == nil {
		m.err = err
	}
	if counts {
		m.times = append(m.times, took)
	}
}

func atRate(ctx context.Context, server Server, perSecond float64, d time.Duration) (l Latency, err error) {
	line, err := server.Line(ctx, 1)
	if err != nil {
		return l, err
	}
	var (
		value = Values(PayloadBytes)
		all   = &measured{times: make([]time.Duration, 0, int(perSecond*d.Seconds()*1.1)+1)}
		sent  = 0
		tick  = time.NewTicker(time.Millisecond)
	)
	defer tick.Stop()
	began := time.Now()
	for last := int((warmUp + d).Seconds() * perSecond); err == nil && sent < last; <-tick.C {
		// All records that became due since the last tick are sent together. Each time counts from
		// its own due time.
		for due := min(last, int(time.Since(began).Seconds()*perSecond)); sent < due && err == nil; sent++ {
			at := began.Add(time.Duration(float64(sent+1) / perSecond * float64(time.Second)))
			counts := at.Sub(began) > warmUp
			err = line.Send(ctx, 0, value(sent), func(err error) { all.answered(at, counts, err) })
		}
	}
	if err == nil {
		err = line.Flush(ctx)
	}
	took := time.Since(began)
	if err = errors.Join(err, line.Close(), all.err); err != nil {
		return l, err
	}
	if took.Seconds() > (warmUp+d).Seconds()*behind {
		return l, fmt.Errorf("%w with %.0f records/s: %d took %s", ErrBehind, perSecond, sent, took)
	}
	if err := checkKept(ctx, server, sent); err != nil {
		return l, err
	}
	return latencyOf(all.times, took-warmUp)
}
