package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// Path is the path of the operation.
const Path = "/v1/debug/process"

// MaxSeconds is the longest profile of the processor.
const MaxSeconds = 60

// Source is what a server says about itself.
type Source struct {
	// Settings returns the settings in force, as YAML with their origin, without secrets.
	Settings func() (string, error)
	// Failing returns the errors of parts that are not ready.
	Failing func(ctx context.Context) map[string]string
	// Log has the last lines of the log.
	Log *Tail
	// Logger gets the faults of the operation.
	Logger *slog.Logger
}

// Register adds the operation.
func Register(to *edge.API, s Source) {
	p := &process{Source: s, started: time.Now()}
	edge.Handle[input, struct{}](to.Part("bundle", edge.PartOptions{Logger: s.Logger, Refuse: func(error) *edge.Error { return nil }}), edge.Operation{
		ID: "debug-process", Route: "GET " + Path, Summary: "What explains the behavior of this process: a bundle",
		Description: "A tar, compressed with gzip: version, settings without secrets, the end of the log, goroutines, memory and, of so many seconds, a profile of the processor. One is made at a time.",
		Answers:     []edge.Answer{{Status: http.StatusOK, Description: "The bundle.", Of: "", Type: "application/gzip"}},
	}, p.serve)
}

type input struct {
	Seconds int `query:"seconds" minimum:"0" maximum:"60" doc:"How long the processor is profiled. Default 0: not at all."`
}

// process makes one bundle at a time.
type process struct {
	Source
	started time.Time
	making  sync.Mutex
}

func (p *process) serve(e *edge.Exchange) error {
	seconds, err := e.Number("seconds", MaxSeconds)
	if err != nil {
		return err
	}
	if !p.making.TryLock() {
		return edge.Refuse(http.StatusServiceUnavailable, problem.Busy, "a bundle is being made, and one is made at a time").RetryAfter(MaxSeconds * time.Second)
	}
	defer p.making.Unlock()
	var whole bytes.Buffer
	if err := p.write(e.R.Context(), NewArchive(&whole, time.Now()), time.Duration(seconds)*time.Second); err != nil {
		return err
	}
	e.W.Header().Set("Content-Type", "application/gzip")
	e.W.Header().Set("Cache-Control", "no-store")
	_, _ = e.W.Write(whole.Bytes()) // The client is gone if it fails.
	return nil
}

// write adds all files and closes the archive. No time, or less, profiles nothing.
func (p *process) write(ctx context.Context, a *Archive, profiled time.Duration) error {
	files := []struct {
		name string
		get  func() ([]byte, error)
	}{
		{"process/build.txt", buildInfo},
		{"process/facts.json", func() ([]byte, error) { return p.facts(ctx) }},
		{"process/settings.yaml", func() ([]byte, error) { text, err := p.Settings(); return []byte(text), err }},
		{"process/log.txt", func() ([]byte, error) { return p.Log.Lines(), nil }},
		{"process/goroutines.txt", func() ([]byte, error) { return profile("goroutine", 1) }},
		{"process/heap.pb.gz", func() ([]byte, error) { return profile("heap", 0) }},
		{"process/status.txt", func() ([]byte, error) { return os.ReadFile("/proc/self/status") }},
		{"process/limits.txt", func() ([]byte, error) { return os.ReadFile("/proc/self/limits") }},
	}
	for _, f := range files {
		if err := a.Add(f.name, f.get); err != nil {
			return err
		}
	}
	if profiled > 0 {
		if err := a.Add("process/cpu.pb.gz", func() ([]byte, error) { return profileProcessor(ctx, profiled) }); err != nil {
			return err
		}
	}
	return a.Close()
}

func buildInfo() ([]byte, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, errors.New("the binary was built without module information")
	}
	return []byte(info.String()), nil
}

func (p *process) facts(ctx context.Context) ([]byte, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(map[string]any{
		"at": time.Now().UTC(), "started_at": p.started.UTC(), "host": host, "pid": os.Getpid(), "not_ready": p.Failing(ctx),
	}, "", "  ")
}

// profile returns a profile of the runtime, as text with a detail above 0.
func profile(name string, detail int) ([]byte, error) {
	var text bytes.Buffer
	err := pprof.Lookup(name).WriteTo(&text, detail)
	return text.Bytes(), err
}

func profileProcessor(ctx context.Context, during time.Duration) ([]byte, error) {
	var text bytes.Buffer
	if err := pprof.StartCPUProfile(&text); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(during):
	}
	pprof.StopCPUProfile()
	return text.Bytes(), ctx.Err()
}
