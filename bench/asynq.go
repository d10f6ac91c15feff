package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// asynq has no call for more than one task, so each producer enqueues its batch from many
// goroutines: with appendfsync always, waiting calls share an fsync.
const asynqEnqueuers = 32

// asynqWorkers is the Concurrency of a server, as in asynq's own benchmark. A higher value makes no
// difference here: a server fetches one task at a time from Redis, and that is its bottleneck.
const asynqWorkers = 10

// asynqServers is the number of parallel servers that was found to be the fastest.
const asynqServers = 8

// asynqQueue is asynq on a Redis of its own.
type asynqQueue struct {
	redis     *redisServer
	options   asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	limiter   *limiter
	// wanted is how many servers Work starts.
	wanted  int
	servers []*asynq.Server
	done    atomic.Int64
}

func openAsynq(ctx context.Context, folder, appendfsync string, servers int, workload Workload) (*asynqQueue, error) {
	redis, err := startRedis(ctx, folder, appendfsync)
	if err != nil {
		return nil, err
	}
	options := asynq.RedisClientOpt{
		Network: "unix", Addr: redis.socket, PoolSize: workload.Tenants*asynqEnqueuers + asynqWorkers,
	}
	q := &asynqQueue{
		redis: redis, options: options, limiter: newLimiter(workload), wanted: servers,
		client: asynq.NewClient(options), inspector: asynq.NewInspector(options),
	}
	if err := q.client.Ping(); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *asynqQueue) Enqueue(ctx context.Context, _ int, payloads [][]byte) error {
	var (
		wait sync.WaitGroup
		next atomic.Int64
		errs = make([]error, asynqEnqueuers)
	)
	for e := range errs {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(payloads)) && errs[e] == nil; i = next.Add(1) - 1 {
				_, errs[e] = q.client.EnqueueContext(ctx, asynq.NewTask(jobType, payloads[i]))
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (q *asynqQueue) EnqueueOne(ctx context.Context, payload []byte) error {
	_, err := q.client.EnqueueContext(ctx, asynq.NewTask(jobType, payload))
	return err
}

func (q *asynqQueue) Waiting(context.Context) (int, error) {
	info, err := q.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return info.Pending, nil
}

// rateLimitError throttles a task, as in asynq's guide to rate limiting.
type rateLimitError struct{ retryIn time.Duration }

func (e *rateLimitError) Error() string {
	return fmt.Sprintf("rate limited (retry in %s)", e.retryIn)
}

func isFailure(err error) bool {
	var limited *rateLimitError
	return !errors.As(err, &limited)
}

func retryDelay(n int, err error, task *asynq.Task) time.Duration {
	var limited *rateLimitError
	if errors.As(err, &limited) {
		return limited.retryIn
	}
	return asynq.DefaultRetryDelayFunc(n, err, task)
}

func (q *asynqQueue) handle(_ context.Context, task *asynq.Task) error {
	wait, err := q.limiter.start(task.Payload(), time.Now())
	if err != nil {
		return err
	}
	if wait > 0 {
		return &rateLimitError{wait}
	}
	q.done.Add(1)
	return nil
}

func (q *asynqQueue) newServer() *asynq.Server {
	return asynq.NewServer(q.options, asynq.Config{
		Concurrency:    asynqWorkers,
		IsFailure:      isFailure,
		RetryDelayFunc: retryDelay,
		// The defaults, 1 s and 5 s, would delay every throttled job.
		TaskCheckInterval:        20 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond,
		Logger:                   quietLogger{},
	})
}

func (q *asynqQueue) Work(ctx context.Context, jobs int) (worked Worked, err error) {
	for range q.wanted {
		server := q.newServer()
		if err := server.Start(asynq.HandlerFunc(q.handle)); err != nil {
			return worked, err
		}
		q.servers = append(q.servers, server)
	}
	if err := poll(ctx, func() (bool, error) { return q.finished(jobs) }); err != nil {
		return worked, err
	}
	worked.Throttled = q.limiter.throttled.Load()
	return worked, checkDone(int(q.done.Load()), jobs)
}

// finished asks Redis only when the handler has seen every job, so that it does not take time from
// it.
func (q *asynqQueue) finished(jobs int) (bool, error) {
	if q.done.Load() < int64(jobs) {
		return false, nil
	}
	info, err := q.inspector.GetQueueInfo("default")
	if err != nil {
		return false, err
	}
	if info.Archived > 0 {
		return false, fmt.Errorf("asynq gave up on %d jobs", info.Archived)
	}
	return info.Size == 0, nil
}

func (q *asynqQueue) Close() error {
	var wait sync.WaitGroup
	for _, server := range q.servers {
		wait.Go(server.Shutdown)
	}
	wait.Wait()
	return errors.Join(q.client.Close(), q.inspector.Close(), q.redis.stop())
}

// quietLogger drops asynq's log, for example of each throttled task. Failures that matter to a
// measure are returned as errors.
type quietLogger struct{}

func (quietLogger) Debug(...any) {}
func (quietLogger) Info(...any)  {}
func (quietLogger) Warn(...any)  {}
func (quietLogger) Error(...any) {}
func (quietLogger) Fatal(...any) {}

// poll calls finished every few milliseconds until it returns true.
func poll(ctx context.Context, finished func() (bool, error)) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if done, err := finished(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
