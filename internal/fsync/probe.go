package fsync

import (
	"context"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/lifecycle"
)

// ProbeInterval is the time from the end of one fsync of a probe to the next.
const ProbeInterval = 5 * time.Second

// Probe is a lifecycle.Service that fsyncs a file of its own, for a store whose fsyncs no [Watch] sees. A disk that is
// slow for longer than ProbeInterval is seen, whether the store has work or not; a shorter stall may fall between two
// probes. It costs one small write in place and one fsync each time, and a goroutine.
type Probe struct {
	*lifecycle.Group
	fs   vfs.FS
	path string
	log  *slog.Logger
}

// NewProbe returns a probe of a watched file system. The path is that of its file, on the disk of the store; it is made.
func NewProbe(fs vfs.FS, path string, log *slog.Logger) *Probe {
	return &Probe{lifecycle.NewGroup(context.Background()), fs, path, log}
}

// Name implements lifecycle.Service.
func (p *Probe) Name() string { return "probe of the disk" }

// Start implements lifecycle.Service.
func (p *Probe) Start(context.Context) error {
	p.Go("probe", p.run)
	return nil
}

// run probes until ctx ends. A probe that fails ends nothing, since the store decides what its own errors mean: it is
// logged, once until one works.
func (p *Probe) run(ctx context.Context) error {
	failed := false
	for again := true; again; again = lifecycle.Sleep(ctx, nil, ProbeInterval) {
		err := p.once()
		if err != nil && !failed {
			p.log.Warn("a file cannot be written and fsynced to see whether the disk is slow", "file", p.path, "error", err)
		}
		failed = err != nil
	}
	return nil
}

// once writes the time, whose length is always the same, and waits for its fsync.
func (p *Probe) once() error {
	f, err := p.fs.OpenReadWrite(p.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(time.Now().UTC().Format(time.RFC3339)+"\n"), 0); err != nil {
		return err
	}
	return f.Sync()
}
