package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Environment is where systems run: a folder for all their files, and the servers that several
// queues use.
type Environment struct {
	// Profile is the address at which sluice's broker serves profiles; empty: none.
	Profile string
	// SlowSync is how much longer each fsync of sluice's broker and of klite takes, by strace; 0: no longer.
	SlowSync time.Duration

	folder   string
	commands commands

	postgresMu sync.Mutex
	postgres   *postgresServer
}

// NewEnvironment creates a folder below parent, or os.TempDir if it is empty. All systems write to
// it: it should be on a disk.
func NewEnvironment(parent string) (*Environment, error) {
	parent, err := filepath.Abs(filepath.Join(parent, "."))
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(parent, "sluice-bench-")
	if err != nil {
		return nil, err
	}
	// As root, PostgreSQL runs as another user, which must be able to enter the folder.
	return &Environment{folder: folder}, os.Chmod(folder, 0o711)
}

// Close stops the servers and removes the folder.
func (e *Environment) Close() error {
	e.postgresMu.Lock()
	defer e.postgresMu.Unlock()
	var err error
	if e.postgres != nil {
		err = e.postgres.stop()
	}
	return errors.Join(err, os.RemoveAll(e.folder))
}

// Systems returns all compared systems, sluice first. Each peer has the settings of its own
// benchmark or documentation, and those that were found to be its fastest.
func (e *Environment) Systems() []System {
	asynqBenchmark, asynqFastest := e.asynq("always", 1), e.asynq("always", asynqServers)
	asynqFastest.EnqueuesAsOther, asynqFastest.RunBatches = true, 50
	relaxedBenchmark, relaxedFastest := e.asynq("everysec", 1), e.asynq("everysec", asynqServers)
	relaxedFastest.EnqueuesAsOther, relaxedFastest.RunBatches = true, 50
	asynqBenchmark.RunBatches, asynqBenchmark.SlowAtLoad, relaxedBenchmark.SlowAtLoad = 5, true, true
	riverUsual := e.river("its defaults, 100 workers", riverDefault)
	riverFastest := e.river("settings of river bench", riverBench)
	riverUsual.RunBatches, riverFastest.RunBatches = 3, 100
	riverUsual.EnqueuesAsOther = true
	return []System{
		{Name: "sluice", RunBatches: 2000, Open: func(ctx context.Context, w Workload) (Queue, error) {
			return openSluice(ctx, e.folder, w)
		}},
		asynqBenchmark, asynqFastest, relaxedBenchmark, relaxedFastest, riverUsual, riverFastest,
	}
}

// RedisSystems returns the systems that keep their jobs in Redis, sluice first, with one setting of
// appendfsync: "always" or "everysec". Each has a Redis of its own, configured in the same way.
func (e *Environment) RedisSystems(appendfsync string) []System {
	benchmark, fastest := e.asynq(appendfsync, 1), e.asynq(appendfsync, asynqServers)
	benchmark.RunBatches = 5
	fastest.EnqueuesAsOther, fastest.RunBatches = true, 50
	return []System{
		{Name: "sluice on Redis, appendfsync " + appendfsync, RunBatches: 200, Open: func(ctx context.Context, w Workload) (Queue, error) {
			return openSluiceOnRedis(ctx, e.folder, appendfsync, w)
		}},
		benchmark, fastest,
	}
}

func (e *Environment) asynq(appendfsync string, servers int) System {
	name, workers := "asynq, appendfsync "+appendfsync, "1 server"
	if servers != 1 {
		workers = fmt.Sprintf("%d servers", servers)
	}
	return System{Name: name, Workers: workers, RunBatches: 20, Open: func(ctx context.Context, w Workload) (Queue, error) {
		return openAsynq(ctx, e.folder, appendfsync, servers, w)
	}}
}

func (e *Environment) river(workers string, settings riverSettings) System {
	return System{Name: "river", Workers: workers, Open: func(ctx context.Context, w Workload) (Queue, error) {
		postgres, err := e.postgresServer(ctx)
		if err != nil {
			return nil, err
		}
		return openRiver(ctx, postgres, settings, w)
	}}
}

// postgresServer starts the server for the first queue that needs it: creating one takes seconds.
func (e *Environment) postgresServer(ctx context.Context) (*postgresServer, error) {
	e.postgresMu.Lock()
	defer e.postgresMu.Unlock()
	if e.postgres == nil {
		started, err := startPostgres(ctx, e.folder)
		if err != nil {
			return nil, err
		}
		e.postgres = started
	}
	return e.postgres, nil
}
