package ops

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/lifecycle"
)

// DrainTime is how long Stop lets requests finish before it ends their context.
const DrainTime = 5 * time.Second

// The bounds of one connection.
const (
	readHeaderTime = 10 * time.Second
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// Options configure a Server.
type Options struct {
	// Addr is the host and port to listen at; port 0 means any free port.
	Addr string
	// Pprof serves profiles of the process at /debug/pprof/. Default false.
	Pprof bool
	// Name names the server in logs and errors. Default "http".
	Name string
	// TLS enables TLS, with its certificates. Default nil: no TLS.
	TLS *tls.Config
	// CheckCertificate returns why the certificate of a connection's client is not good any more; nil if it is, or there
	// is none. Requests of such a client end within a second. Default nil: a certificate is good as long as its connection.
	CheckCertificate func(*tls.ConnectionState) error
	// Connections bounds the connections, together with other listeners. Default nil: no
	// bound.
	Connections *connlimit.Limiter
	// Load bounds the requests in progress that bring new work to the API, or read, together with other servers. Default nil:
	// no bound. That of a public server is the one of the API.
	Load *Load
	// Hosts are the names that requests may ask for, besides addresses and localhost. "*"
	// is any. Default: none.
	Hosts []string
	// Accounts know who may call what for operators. Default nil: anybody may call everything. Fronts
	// and public servers have none.
	Accounts *access.Accounts
	// Audit gets refusals, and what changes something. Default nil: nothing is recorded.
	Audit *audit.Trail
	// Logger gets errors of connections. Default slog.Default().
	Logger *slog.Logger
}

// Server serves HTTP: the operator's endpoints and the handlers that are mounted. It is
// a lifecycle.Service.
type Server struct {
	options  Options
	mux      *http.ServeMux
	handler  http.Handler // answers all requests: the mux, or that of NewFront
	registry *prometheus.Registry
	ready    readiness
	warnings readiness // never stopping: a warning does not make the server unready
	streams  streams
	guard    *guard
	api      *edge.API // nil until API is called

	// listen is net.ListenConfig.Listen, except in tests in virtual time.
	listen   func(ctx context.Context, network, address string) (net.Listener, error)
	group    *lifecycle.Group
	http     *http.Server
	listener net.Listener
	endAll   context.CancelFunc // ends the context of every request
}

var _ lifecycle.Service = (*Server)(nil)

// NewServer returns a server that listens once it is started. Mount handlers and
// register operations, checks and collectors before.
func NewServer(options Options) *Server {
	s := newServer(options)
	options = s.options
	s.registry.MustRegister(s.guard.refused)
	if options.Load != nil {
		s.registry.MustRegister(options.Load)
	}
	s.Handle("GET /metrics", metricsHandler(s.registry, options.Logger))
	s.Handle("GET /healthz", http.HandlerFunc(alive))
	s.Handle("GET /readyz", http.HandlerFunc(s.serveReady))
	if options.Pprof {
		s.Handle("GET /debug/pprof/", http.HandlerFunc(pprof.Index))
		s.Handle("GET /debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
		s.Handle("GET /debug/pprof/profile", http.HandlerFunc(pprof.Profile))
		s.Handle("GET /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		s.Handle("GET /debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	}
	return s
}

// NewFront returns a server with one handler and without the operator's endpoints.
func NewFront(options Options, handler http.Handler) *Server {
	s := newServer(options)
	s.handler = handler
	return s
}

// NewPublic returns a server of the operations of this one's API that are for the public,
// and of /healthz.
func (s *Server) NewPublic(options Options) *Server {
	front := newServer(options)
	front.mux.HandleFunc("GET /healthz", alive)
	front.mux.Handle("/", s.API().Public())
	return front
}

func newServer(options Options) *Server {
	options.Name = cmp.Or(options.Name, "http")
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	s := &Server{options: options, mux: http.NewServeMux(), registry: newRegistry(), guard: newGuard(options.Accounts, options.Audit)}
	s.handler = s.mux
	s.listen = new(net.ListenConfig).Listen
	s.group = lifecycle.NewGroup(context.Background())
	return s
}

// Handle serves a pattern, as http.ServeMux has it, to those who have the right that access.Path gives it. A duplicate
// pattern panics.
func (s *Server) Handle(pattern string, handler http.Handler) {
	s.mux.Handle(pattern, s.guard.wrap(pattern, handler))
}

// API is where parts register their operations. The first call mounts it.
func (s *Server) API() *edge.API {
	if s.api == nil {
		var load edge.Load
		if s.options.Load != nil {
			load = s.options.Load
		}
		s.api = edge.NewGuarded(s.guard, load)
		s.api.Mount(s.Handle)
	}
	return s.api
}

// Registry is where parts register their collectors.
func (s *Server) Registry() *prometheus.Registry { return s.registry }

// Ready registers a check of /readyz. A duplicate name panics.
func (s *Server) Ready(name string, check Check) { s.ready.add(name, check) }

// Failing runs the checks of /readyz, and returns the errors of those that fail, by name.
func (s *Server) Failing(ctx context.Context) map[string]string { return s.ready.failing(ctx) }

// Warn registers a check whose error /readyz has as a warning: the server is ready all the same. A duplicate name panics.
func (s *Server) Warn(name string, check Check) { s.warnings.add(name, check) }

// Warnings runs the checks of Warn, and returns the errors of those that fail, by name.
func (s *Server) Warnings(ctx context.Context) map[string]string { return s.warnings.failing(ctx) }

// Name implements lifecycle.Service.
func (s *Server) Name() string { return s.options.Name }

// Start listens, and returns when connections are accepted. An error names the
// address.
func (s *Server) Start(ctx context.Context) error {
	listener, err := s.listen(ctx, "tcp", s.options.Addr)
	if err != nil {
		return err
	}
	requests, endAll := context.WithCancel(context.WithoutCancel(ctx))
	s.listener, s.endAll = patientListener{s.options.Connections.Listen(listener)}, endAll
	s.http = &http.Server{
		Handler:           s.streams.wrap(s.certified(knownHosts(s.options.Hosts, s.handler))),
		TLSConfig:         s.options.TLS,
		ReadHeaderTimeout: readHeaderTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext:       connected,
		ErrorLog:          log.New(errorLog{s.options.Logger}, "", 0),
	}
	s.group.Go("serve", func(context.Context) error {
		serve := s.http.Serve
		if s.options.TLS != nil {
			serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
		}
		if err := serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if s.options.Accounts != nil || s.options.CheckCertificate != nil {
		s.group.Go("end requests of revoked tokens and certificates", s.endInvalid)
	}
	return nil
}

// Addr returns the address that the server listens at, with the actual port; nil
// before Start.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Stop accepts no new connection and ends event streams. Other requests have DrainTime
// to finish; then their context ends. Requests that still run when ctx ends are cut
// off, which is an error.
func (s *Server) Stop(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	s.ready.stop()
	s.streams.stop()
	endAll := time.AfterFunc(DrainTime, s.endAll)
	defer endAll.Stop()
	err := s.http.Shutdown(ctx)
	s.endAll()
	if err != nil {
		err = fmt.Errorf("requests were cut off: %w", errors.Join(err, s.http.Close()))
	}
	return errors.Join(err, s.group.Stop(ctx))
}

// Failed implements lifecycle.Service.
func (s *Server) Failed() <-chan struct{} { return s.group.Failed() }

// Err implements lifecycle.Service.
func (s *Server) Err() error { return s.group.Err() }

// errorLog takes the lines of an http.Server. Failed handshakes are for debugging: clients that nobody
// knows cause them, as many as they like.
type errorLog struct{ *slog.Logger }

// Write implements io.Writer.
func (l errorLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.Contains(line, []byte("TLS handshake error")) {
		level = slog.LevelDebug
	}
	l.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
