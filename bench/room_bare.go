package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bareVariable is set, to a number of bytes and an address, for the process that
// startBare starts.
const bareVariable = "SLUICE_BENCH_BARE"

// BareProcess runs the process of the bare handler or of a floor, and never returns there. In other
// processes it does nothing.
func BareProcess() {
	floorProcess()
	size, address, found := strings.Cut(os.Getenv(bareVariable), ":")
	if !found {
		return
	}
	err := serveBare(size, address)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// serveBare answers every request with a number of bytes, and does nothing else: the cost of the
// standard library's server alone.
func serveBare(size, address string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("x"), n)
	server := http.Server{
		Addr: address, ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write(body)
		}),
	}
	return server.ListenAndServe()
}

// startBare starts the bare handler with answers of a size. The process is this program again: its
// main must call BareProcess first.
func (e *Environment) startBare(ctx context.Context, size int) (*webServer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s := &webServer{address: address}
	self := account{os.Geteuid(), os.Getegid()}
	variable := fmt.Sprintf("%s=%d:%s", bareVariable, size, address)
	s.process, err = start(ctx, self, e.folder, listens(address), "/usr/bin/env", variable, program)
	return s, err
}

// webServer is an HTTP server.
type webServer struct {
	process *process
	address string
	// folder is removed and redis is stopped at the end, if they are set.
	folder string
	redis  *redisServer
	// again starts the process again, on the data in the folder.
	again func(context.Context) (*process, error)
}

// restart ends the process and starts it again.
func (s *webServer) restart(ctx context.Context) error {
	err := s.process.stop(syscall.SIGTERM)
	if err == nil {
		s.process, err = s.again(ctx)
	}
	return err
}

func (s *webServer) stop() error {
	var err error
	if s.process != nil {
		err = s.process.stop(syscall.SIGKILL)
	}
	if s.folder != "" {
		err = errors.Join(err, removeAll(s.folder))
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.stop())
	}
	return err
}
