package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/watch"
)

// Version is that of the API, as the OpenAPI document has it.
const Version = "1.0"

// The bounds of the edge.
const (
	// MaxBody is the most bytes of a body, but that of settings.
	MaxBody = 4 << 10
	// MaxSettings is the most bytes of a room's settings.
	MaxSettings = 128 << 10
	// MaxWaiters is how many requests wait for news at one time, each with a goroutine.
	MaxWaiters = 10_000
	// MaxWait is how long one waits at most.
	MaxWait = 30 * time.Second
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = 10 * time.Second
)

// Engine is what the edge needs of the room's engine, whose methods say what each
// promises.
type Engine interface {
	PutRoom(ctx context.Context, name string, settings room.Settings) (view room.View, created bool, err error)
	Room(ctx context.Context, name string) (room.View, error)
	Rooms(ctx context.Context) ([]room.View, error)
	DeleteRoom(ctx context.Context, name string) error
	Pause(ctx context.Context, name string) (room.View, error)
	Resume(ctx context.Context, name string) (room.View, error)
	RevokeAll(ctx context.Context, name string) error
	RevokeTicket(ctx context.Context, name, ticket string) error
	RevokeVisitor(ctx context.Context, name, key string) error
	Enter(ctx context.Context, name string, visit room.Visit) (room.Answer, error)
	Ask(ctx context.Context, name, ticket string, client netip.Addr) (room.Answer, error)
	Parse(ctx context.Context, name, ticket string, client netip.Addr) (room.Ticket, error)
	Renew(ctx context.Context, name, ticket string, client netip.Addr) (room.Answer, error)
	Leave(ctx context.Context, name, ticket string, client netip.Addr) error
	JWKS(ctx context.Context) ([]byte, error)
	RotateKeys(ctx context.Context) error
}

var _ Engine = (*room.Engine)(nil)

// Option changes what New makes.
type Option func(*server)

// WithLogger sets where answers of 500 and above are logged, each kind at most
// once in a second. Default: nowhere.
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.log.logger = logger } }

// WithTrustedProxies sets whose X-Forwarded-For is believed. Default: nobody's.
func WithTrustedProxies(proxies []netip.Prefix) Option {
	return func(s *server) { s.proxies = proxies }
}

// WithOrigins sets which origins' pages may call the visitors' paths, such as
// "https://shop.example"; "*" stands for all. Default: none but the server's own.
func WithOrigins(origins ...string) Option { return func(s *server) { s.origins = origins } }

// server has what the operations share.
type server struct {
	engine  Engine
	hub     *watch.Hub
	log     faultLog
	proxies []netip.Prefix
	origins []string
	waiters limit
}

// New returns the handler of the rooms' API: /v1/rooms and all paths below it,
// /v1/room-keys/rotate, JWKSPath and DocumentPath. It needs no shutdown of its own,
// but a request stops waiting for news only when its context ends, and streams are
// the hub's.
func New(engine Engine, hub *watch.Hub, options ...Option) http.Handler {
	s := &server{engine: engine, hub: hub, waiters: limit{most: MaxWaiters}}
	s.log.logger = slog.New(slog.DiscardHandler)
	for _, option := range options {
		option(s)
	}
	return s
}
