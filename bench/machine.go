package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Fact is a property of the machine that numbers depend on.
type Fact struct{ Name, Value string }

// Parts selects the parts of sluice that are measured.
type Parts struct{ Bulk, BulkRedis, Topic, TopicCluster, Room bool }

// Facts returns the environment: versions, processors, how busy the machine is, and the time of an
// fsync. Only the peers of the selected parts must be installed.
func (e *Environment) Facts(ctx context.Context, parts Parts) ([]Fact, error) {
	facts := []Fact{{"Go", fmt.Sprintf("%s, GOMAXPROCS %d", runtime.Version(), runtime.GOMAXPROCS(0))}}
	redis, err := serverFact(ctx, "Redis", "redis-server", redisFolders, "redis-server")
	if err != nil {
		return nil, err
	}
	facts = append(facts, redis)
	if parts.Bulk || parts.BulkRedis {
		facts = append(facts, Fact{"asynq", moduleVersion("github.com/hibiken/asynq")})
	}
	if parts.Bulk {
		facts = append(facts, Fact{"river", moduleVersion("github.com/riverqueue/river")})
	}
	if parts.Bulk || parts.Room {
		postgres, err := serverFact(ctx, "PostgreSQL", "postgres", postgresFolders, "postgresql")
		if err != nil {
			return nil, err
		}
		facts = append(facts, postgres)
	}
	if parts.Topic || parts.TopicCluster {
		peers, err := e.topicFacts(ctx, parts.Topic)
		if err != nil {
			return nil, err
		}
		facts = append(facts, peers...)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, err
	}
	fsync, err := e.fsyncTime()
	return append(facts,
		Fact{"load average before", strings.Join(strings.Fields(string(load))[:3], " ")},
		Fact{"fsync of 4 KiB, median", fsync.Round(time.Microsecond).String()}), err
}

// serverFact returns the version of an installed server.
func serverFact(ctx context.Context, name, command, folders, debianPackage string) (Fact, error) {
	path, err := find(command, folders, debianPackage)
	if err != nil {
		return Fact{}, err
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return Fact{}, fmt.Errorf("%s --version: %w", path, err)
	}
	return Fact{name, strings.TrimSpace(string(version))}, nil
}

// moduleVersion returns the version of a module that is linked into this program.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dependency := range info.Deps {
		if dependency.Path == path {
			return dependency.Version
		}
	}
	return "unknown"
}

// fsyncTime returns the median time of appending 4 KiB to a file with an fsync, on the disk of the
// systems' files.
func (e *Environment) fsyncTime() (time.Duration, error) {
	file, err := os.Create(filepath.Join(e.folder, "fsync"))
	if err != nil {
		return 0, err
	}
	var (
		page  = make([]byte, 4096)
		times = make([]time.Duration, 101)
		errs  []error
	)
	for i := range times {
		began := time.Now()
		_, err := file.Write(page)
		errs = append(errs, err, file.Sync())
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)/2], errors.Join(append(errs, file.Close(), os.Remove(file.Name()))...)
}
