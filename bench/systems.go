package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// Environment is where systems run: a folder for all their files, and the
// servers that outlive one queue.
type Environment struct {
	folder string

	postgresMu sync.Mutex
	postgres   *postgresServer
}

// NewEnvironment makes a folder below parent, which is os.TempDir where it is
// empty. All systems write to it: it should be on a disk.
func NewEnvironment(parent string) (*Environment, error) {
	parent, err := filepath.Abs(filepath.Join(parent, "."))
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(parent, "sluice-bench-")
	if err != nil {
		return nil, err
	}
	// PostgreSQL runs as another user where we are root, and must get through.
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

// Systems are all those compared. The first one is sluice, and of each peer the
// last one is the fastest.
func (e *Environment) Systems() []System {
	return []System{
		{Of: Sluice, Name: "sluice", Open: func(ctx context.Context, w Workload) (Queue, error) {
			return openSluice(ctx, e.folder, w)
		}},
		e.asynq("always"),
		e.asynq("everysec"),
		e.river("its defaults", riverDefault),
		e.river("settings of river bench", riverBench),
	}
}

func (e *Environment) asynq(appendfsync string) System {
	return System{Of: Asynq, Name: "asynq, appendfsync " + appendfsync, Open: func(ctx context.Context, w Workload) (Queue, error) {
		return openAsynq(ctx, e.folder, appendfsync, w)
	}}
}

func (e *Environment) river(name string, settings riverSettings) System {
	return System{Of: River, Name: "river, " + name, Open: func(ctx context.Context, w Workload) (Queue, error) {
		postgres, err := e.postgresServer(ctx)
		if err != nil {
			return nil, err
		}
		return openRiver(ctx, postgres, settings, w)
	}}
}

// postgresServer starts the server for the first queue that needs it: making
// one takes seconds.
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
