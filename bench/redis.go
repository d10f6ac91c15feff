package bench

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// redisFolders is searched for redis-server if it is not in PATH.
const redisFolders = "/usr/local/bin"

// redisServer is a Redis that is started for one queue.
type redisServer struct {
	process *process
	folder  string
	// socket is the path of its unix socket, its only listener.
	socket string
}

// startRedis starts a Redis that appends every write to its log, with an fsync as appendfsync says:
// "always", before the client gets its answer, or "everysec".
func startRedis(ctx context.Context, parent, appendfsync string) (_ *redisServer, err error) {
	path, err := find("redis-server", redisFolders, "redis-server")
	if err != nil {
		return nil, err
	}
	self := account{os.Geteuid(), os.Getegid()}
	r := &redisServer{}
	if r.folder, err = folderFor(parent, "redis-", self); err != nil {
		return nil, err
	}
	r.socket = filepath.Join(r.folder, "redis.sock")
	// Snapshots and rewriting the log are off: the log keeps the jobs, and both would only take
	// time.
	r.process, err = start(ctx, self, r.folder, r.ready, path,
		"--port", "0", "--unixsocket", r.socket, "--dir", r.folder, "--save", "",
		"--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return nil, errors.Join(err, removeAll(r.folder))
	}
	return r, nil
}

func (r *redisServer) ready(ctx context.Context) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", r.socket)
	if err != nil {
		return err
	}
	return connection.Close()
}

// stop kills the server: its data is not needed any more.
func (r *redisServer) stop() error {
	return errors.Join(r.process.stop(syscall.SIGKILL), removeAll(r.folder))
}

// info returns the numbers of INFO.
func (r *redisServer) info(ctx context.Context) (map[string]float64, error) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: r.socket})
	text, err := client.Info(ctx, "everything").Result()
	if err = errors.Join(err, client.Close()); err != nil {
		return nil, err
	}
	numbers := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			numbers[name] = number
		}
	}
	return numbers, nil
}
