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

// Fact is something of the machine that numbers depend on.
type Fact struct{ Name, Value string }

// Facts tells what ran where: versions, processors, how busy the machine is,
// and how long its disk takes for an fsync.
func (e *Environment) Facts(ctx context.Context) ([]Fact, error) {
	facts := []Fact{
		{"Go", fmt.Sprintf("%s, GOMAXPROCS %d", runtime.Version(), runtime.GOMAXPROCS(0))},
		{"asynq", moduleVersion("github.com/hibiken/asynq")},
		{"river", moduleVersion("github.com/riverqueue/river")},
	}
	for _, server := range []struct{ name, command, folders, debianPackage string }{
		{"Redis", "redis-server", redisFolders, "redis-server"},
		{"PostgreSQL", "postgres", postgresFolders, "postgresql"},
	} {
		path, err := find(server.command, server.folders, server.debianPackage)
		if err != nil {
			return nil, err
		}
		version, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", path, err)
		}
		facts = append(facts, Fact{server.name, strings.TrimSpace(string(version))})
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

// moduleVersion is the version of a module that is linked into this program.
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

// fsyncTime is the median time of appending 4 KiB to a file with an fsync, where
// the systems have their files.
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
