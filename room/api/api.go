package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/tracing"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/watch"
)

// JWKSPath is where the keys are that verify passes.
const JWKSPath = "/.well-known/jwks.json"

// The bounds of the edge.
const (
	// MaxBody is the most bytes of a body, except that of settings.
	MaxBody = 4 << 10
	// MaxSettings is the most bytes of a room's settings.
	MaxSettings = 128 << 10
	// MaxWaiters is how many requests wait for news at one time, each with a goroutine.
	MaxWaiters = 10_000
	// MaxPage is the most rooms of one answer.
	MaxPage = 1_000
	// MaxWait is the longest wait of one request.
	MaxWait = 30 * time.Second
)

// Engine is what the edge needs of the room's engine, whose methods say what each
// promises.
type Engine interface {
	PutRoom(ctx context.Context, name string, settings room.Settings) (view engine.View, created bool, err error)
	Room(ctx context.Context, name string) (engine.View, error)
	Rooms(ctx context.Context, after string, limit int) (views []engine.View, more bool, err error)
	DeleteRoom(ctx context.Context, name string) error
	ReportHealth(ctx context.Context, name string, utilization float64) (engine.View, error)
	Pause(ctx context.Context, name string) (engine.View, error)
	SoldOut(ctx context.Context, name string) (engine.View, error)
	Resume(ctx context.Context, name string) (engine.View, error)
	RevokeAll(ctx context.Context, name string) error
	RevokeTicket(ctx context.Context, name, ticket string) error
	RevokeVisitor(ctx context.Context, name, key string) error
	MakeCodes(ctx context.Context, name, lane string, count int, until time.Time) ([]string, error)
	RevokeCodes(ctx context.Context, name string) error
	Enter(ctx context.Context, name string, visit room.Visit) (engine.Answer, error)
	Ask(ctx context.Context, name, ticket string, client netip.Addr) (engine.Answer, error)
	Parse(ctx context.Context, name, ticket string, client netip.Addr) (engine.Ticket, error)
	Renew(ctx context.Context, name, ticket string, client netip.Addr) (engine.Answer, error)
	Leave(ctx context.Context, name, ticket string, client netip.Addr) error
	JWKS(ctx context.Context) ([]byte, error)
	RotateKeys(ctx context.Context) error
	RevokeKeys(ctx context.Context) error
}

var _ Engine = (*engine.Engine)(nil)

// Option changes what Register adds.
type Option func(*server)

// WithLogger sets where faults of the server are logged, each kind at most once a
// second. Default: nowhere.
func WithLogger(logger *slog.Logger) Option { return func(s *server) { s.logger = logger } }

// WithTrustedProxies sets the proxies whose X-Forwarded-For is believed. Default:
// none.
func WithTrustedProxies(proxies []netip.Prefix) Option {
	return func(s *server) { s.proxies = proxies }
}

// WithOrigins sets the origins whose pages may call the visitors' paths, such as
// "https://shop.example"; "*" stands for all. Default: none but the server's own.
func WithOrigins(origins ...string) Option { return func(s *server) { s.origins = origins } }

// WithTracerProvider makes spans of requests by which visitors join, renew and leave, and of their other requests that
// have a traceparent. Default: none.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(s *server) { s.tracer = tracing.Tracer(provider) }
}

// server has what the operations share.
type server struct {
	engine  Engine
	hub     *watch.Hub
	logger  *slog.Logger
	proxies []netip.Prefix
	origins []string
	waiters limit
	tracer  trace.Tracer
}

// New returns an API of rooms alone, as Register adds it.
func New(engine Engine, hub *watch.Hub, options ...Option) http.Handler {
	to := edge.New()
	Register(to, engine, hub, options...)
	return to
}

// Register adds the operations of rooms to an API. They need no shutdown, but a
// request stops waiting for news only when its context ends, and the hub owns the
// streams.
func Register(to *edge.API, engine Engine, hub *watch.Hub, options ...Option) {
	s := &server{engine: engine, hub: hub, waiters: limit{most: MaxWaiters}, logger: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		option(s)
	}
	p := to.Part("room", edge.PartOptions{
		Logger: s.logger, Refuse: refuse, MaxBody: MaxBody, Origins: s.origins,
		Schemas: map[reflect.Type]reflect.Type{reflect.TypeFor[room.Settings](): reflect.TypeFor[settingsView]()},
		Security: map[string]*huma.SecurityScheme{
			ticketScheme:  {Type: "http", Scheme: "bearer", Description: "The ticket of the last answer."},
			ticketInQuery: {Type: "apiKey", In: "query", Name: "ticket", Description: "For EventSource, which sets no headers."},
		},
	})
	s.registerRooms(p)
	s.registerVisitors(p)
	s.registerKeys(p)
}

// The schemes by which a visitor shows the ticket.
const (
	ticketScheme  = "ticket"
	ticketInQuery = "ticketInQuery"
)

// RoomPath is the path of a request about one room.
type RoomPath struct {
	Room string `path:"room" maxLength:"64" pattern:"^[a-z0-9][a-z0-9-]*$" doc:"The name of a room."`
}

// none is an input or an output without members.
type none struct{}

func (s *server) registerRooms(p *edge.Part) {
	edge.Handle[inRooms, outRooms](p, edge.Operation{ID: "list-rooms", Route: "GET /v1/rooms", Summary: "Rooms, by name, without their settings"}, s.listRooms)
	edge.Handle[RoomPath, outRoom](p, edge.Operation{ID: "show-room", Route: "GET /v1/rooms/{room}", Summary: "A room"}, within(about(s.engine.Room)))
	edge.Handle[inSettings, outRoom](p, edge.Operation{
		ID: "put-room", Route: "PUT /v1/rooms/{room}", Summary: "Create a room, or replace its settings", MaxBody: MaxSettings,
		Answers: []edge.Answer{
			{Status: http.StatusOK, Description: "The room was changed.", Of: roomView{}},
			{Status: http.StatusCreated, Description: "The room was created.", Of: roomView{}},
		},
	}, within(s.putRoom))
	edge.Handle[RoomPath, none](p, edge.Operation{ID: "delete-room", Route: "DELETE /v1/rooms/{room}", Summary: "Remove a room with all its visitors"}, within(s.deleteRoom))
	edge.Handle[RoomPath, outRoom](p, edge.Operation{ID: "pause-room", Route: "POST /v1/rooms/{room}/pause", Summary: "Admit nobody; visitors may come and wait"}, within(about(s.engine.Pause)))
	edge.Handle[RoomPath, outRoom](p, edge.Operation{ID: "resume-room", Route: "POST /v1/rooms/{room}/resume", Summary: "End a pause, or open a room that was sold out"}, within(about(s.engine.Resume)))
	edge.Handle[RoomPath, outRoom](p, edge.Operation{
		ID: "sold-out-room", Route: "POST /v1/rooms/{room}/sold-out", Summary: "Close until the room is resumed, because there is nothing left; visitors in the queue are told so",
	}, within(about(s.engine.SoldOut)))
	edge.Handle[inHealth, outRoom](p, edge.Operation{
		ID: "report-health", Route: "PUT /v1/rooms/{room}/health", Summary: "Report how busy the upstream is, for a room whose capacity or batch is auto",
	}, within(s.reportHealth))
	edge.Handle[inRevoke, none](p, edge.Operation{
		ID: "revoke", Route: "POST /v1/rooms/{room}/revoke", Summary: "End the place of one visitor, or without a body the visits of all who are inside",
	}, within(s.revoke))
	edge.Handle[inCodes, outCodes](p, edge.Operation{
		ID: "make-codes", Route: "POST /v1/rooms/{room}/codes", Summary: "Make codes with which visitors enter in a lane, or a room by invitation; they are not stored",
		Answers: []edge.Answer{{Status: http.StatusCreated, Description: "The codes, each once.", Of: codesView{}}},
	}, within(s.makeCodes))
	edge.Handle[RoomPath, none](p, edge.Operation{
		ID: "revoke-codes", Route: "DELETE /v1/rooms/{room}/codes", Summary: "Make all codes void that were made so far; places that visitors have by them stay",
	}, within(s.revokeCodes))
	edge.Handle[RoomPath, outLottery](p, edge.Operation{
		ID: "show-lottery", Route: "GET /v1/rooms/{room}/lottery", Summary: "The commitment that verifies the lottery", Audience: edge.Visitors,
	}, s.lottery)
}

func (s *server) registerVisitors(p *edge.Part) {
	visitors := func(id, route, summary string) edge.Operation {
		op := edge.Operation{ID: id, Route: route, Summary: summary, Tag: "visitors", Audience: edge.Visitors}
		if id != "enter" {
			op.Security = []string{ticketScheme}
		}
		return op
	}
	enter := visitors("enter", "POST /v1/rooms/{room}/visitors", "Join the queue, or enter at once")
	enter.Answers = []edge.Answer{
		{Status: http.StatusOK, Description: "The key already has a place.", Of: placeView{}},
		{Status: http.StatusCreated, Description: "A new place.", Of: placeView{}},
	}
	edge.Handle[inEnter, outPlace](p, enter, s.traced(enter, s.enter))
	ask := visitors("ask", "GET /v1/rooms/{room}/visitors/me", "The place of the visitor. A called visitor claims the slot by asking")
	edge.Handle[inAsk, outPlace](p, ask, s.traced(ask, s.me))
	leave := visitors("leave", "DELETE /v1/rooms/{room}/visitors/me", "Give up the place, or end the visit")
	edge.Handle[RoomPath, none](p, leave, s.traced(leave, s.leave))
	renew := visitors("renew", "POST /v1/rooms/{room}/visitors/me/renew", "Extend a fixed pass, as often as the room allows")
	edge.Handle[RoomPath, outPlace](p, renew, s.traced(renew, s.renew))
	stream := visitors("watch", "GET /v1/rooms/{room}/visitors/me/watch", "Server-sent events: the place, now and on every change")
	stream.Security = append(stream.Security, ticketInQuery)
	stream.Description = "A called visitor claims the slot, as by asking. While the stream is open the visitor counts as asking."
	stream.Status = http.StatusOK
	stream.Answers = []edge.Answer{{
		Status: http.StatusOK, Of: placeView{}, Type: "text/event-stream",
		Description: "A stream of events, each with the place as its data. A visitor who is inside gets one each time the pass was renewed. " +
			"The last event is gone, with {\"reason\"}. A comment is sent after 15 s of silence.",
	}}
	edge.Handle[inWatch, none](p, stream, s.watch)
}

func (s *server) registerKeys(p *edge.Part) {
	edge.Handle[none, none](p, edge.Operation{
		ID: "rotate-keys", Route: "POST /v1/room-keys/rotate", Tag: "keys", Summary: "Sign with a new key from now on; older keys stay valid",
	}, s.rotateKeys)
	edge.Handle[none, none](p, edge.Operation{
		ID: "revoke-keys", Route: "POST /v1/room-keys/revoke", Tag: "keys", Summary: "Sign with a new key from now on; older keys, tickets and passes are not valid any more",
	}, s.revokeKeys)
	edge.Handle[none, none](p, edge.Operation{
		ID: "keys", Route: "GET " + JWKSPath, Tag: "keys", Summary: "The keys that verify passes", Status: http.StatusOK, Audience: edge.Everybody,
		Answers: []edge.Answer{{Status: http.StatusOK, Description: "A JSON Web Key Set.", Of: keySetView{}, Type: "application/jwk-set+json"}},
	}, s.jwks)
}
