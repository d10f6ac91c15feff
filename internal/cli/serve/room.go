package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/watch"
)

// roomFolder is the folder of rooms in the data directory.
const roomFolder = "room"

// stateTimeout bounds opening a store in Redis.
const stateTimeout = 15 * time.Second

// rooms are the rooms of this process.
type rooms struct {
	part
	engine *engine.Engine
	hub    *watch.Hub
}

// openRooms opens the store of rooms and mounts their API on the server. A nil publisher disables
// events, a nil tracer traces.
func openRooms(ctx context.Context, settings *config.Config, server *ops.Server, disk *fsync.Watch, accounts *access.Accounts, publisher engine.Publisher, tracer trace.TracerProvider, log *slog.Logger) (*rooms, error) {
	if settings.State.IsOff() {
		return &rooms{part: *noPart()}, nil
	}
	store, err := openRoomStore(ctx, settings, disk, log)
	if err != nil {
		return nil, err
	}
	keys, err := engine.ParseTokenKeys(settings.Room.TokenKeys)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("room.token_keys: %w", err), store.Close())
	}
	options := []engine.Option{engine.WithLogger(log), engine.WithTokenKeys(keys), engine.WithTracerProvider(tracer)}
	if publisher != nil {
		options = append(options, engine.WithPublisher(publisher))
	}
	e, err := engine.New(store, settings.Room.Config(), options...)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	hub := watch.New(e, watch.WithMaxStreams(settings.Room.MaxStreams))
	api.Register(server.API(), ownedRooms{e, accounts}, hub, api.WithLogger(log), api.WithTrustedProxies(settings.Room.TrustedProxies.Prefixes()),
		api.WithOrigins(settings.Room.CORSOrigins...), api.WithTracerProvider(tracer))
	server.Registry().MustRegister(e.Collector(), hub.Collector())
	server.Ready("room", func(ctx context.Context) error {
		if _, err := store.Now(ctx); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
		return e.Err()
	})
	if examined, ok := store.(interface{ Examine(context.Context) error }); ok { // all parts have the same Redis
		server.Warn("redis", examined.Examine)
	}
	opened := &rooms{engine: e, hub: hub}
	opened.part = part{
		services: []lifecycle.Service{e, hub, newRoomsOfFile(e, settings.Room.Rooms)},
		close:    store.Close, checkpoint: checkpointOf(store),
		secrets: func(settings *config.Config) error {
			keys, err := engine.ParseTokenKeys(settings.Room.TokenKeys)
			if err == nil {
				e.SetTokenKeys(keys)
			}
			return err
		},
	}
	return opened, nil
}

// ownedRooms is an engine whose rooms belong to those who create them.
type ownedRooms struct {
	*engine.Engine
	accounts *access.Accounts
}

// PutRoom creates a room within the quota of the account that asks, or changes it.
func (r ownedRooms) PutRoom(ctx context.Context, name string, s room.Settings) (engine.View, bool, error) {
	var by room.Owner
	if p := access.From(ctx); p != nil {
		by = room.Owner{Name: p.Name, Most: r.accounts.Most(p.Name, access.MaxRooms)}
	}
	return r.PutRoomOf(ctx, by, name, s)
}

// openPublic returns the servers of what is public of the API, one for each address. They answer
// whatever host a request asks for, as a gate does: nothing there depends on who asks.
func openPublic(settings *config.Config, server *ops.Server, secure *security, connections *connlimit.Limiter, log *slog.Logger) []lifecycle.Service {
	var all []lifecycle.Service
	for _, l := range settings.PublicListeners() {
		own := secure.of(l)
		if own != nil { // visitors have no certificates
			own = own.Clone()
			own.ClientAuth, own.GetConfigForClient = tls.NoClientCert, nil
		}
		all = append(all, server.NewPublic(ops.Options{
			Addr: l.Addr, Name: strings.TrimSpace("public " + l.Name), Hosts: []string{ops.AnyHost}, TLS: own, Connections: connections, Logger: log,
		}))
	}
	return all
}

// openRoomStore opens the store that the settings name.
func openRoomStore(ctx context.Context, settings *config.Config, disk *fsync.Watch, log *slog.Logger) (room.Store, error) {
	if !settings.State.IsEmbedded() {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		store, err := redisstore.Open(ctx, redisstore.Options{URL: settings.State.URL(), Logger: log})
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", settings.State, err)
		}
		return store, nil
	}
	store, err := pebblestore.Open(filepath.Join(settings.DataDir, roomFolder), pebblestore.Options{
		Logger: log, DiskReserve: settings.DiskReserve, FS: disk.FS("room"),
	})
	if errors.Is(err, pebblestore.ErrInUse) {
		return nil, fmt.Errorf("%w; \"sluice serve\" with gate.http is a server and a gate in one process, and --state redis://… is shared by several", err)
	}
	if err != nil {
		return nil, err
	}
	return store, nil
}

// roomPutter is the part of the engine that creates rooms.
type roomPutter interface {
	Room(ctx context.Context, name string) (engine.View, error)
	PutRoom(ctx context.Context, name string, s room.Settings) (engine.View, bool, error)
}

// roomMaker is a service that creates or changes rooms when it starts.
type roomMaker struct {
	*lifecycle.Group
	name  string
	start func(ctx context.Context) error
}

// Name implements lifecycle.Service.
func (m *roomMaker) Name() string { return m.name }

// Start implements lifecycle.Service.
func (m *roomMaker) Start(ctx context.Context) error { return m.start(ctx) }

// newRoomsOfFile creates and changes the rooms of the settings.
func newRoomsOfFile(engine roomPutter, of map[string]room.Settings) *roomMaker {
	return &roomMaker{lifecycle.NewGroup(context.Background()), "rooms of the settings", func(ctx context.Context) error {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if err := ensureRoom(ctx, engine, name, of[name]); err != nil {
				return fmt.Errorf("room %s: %w", name, err)
			}
		}
		return nil
	}}
}

// ensureRoom creates a room, or changes it if its settings differ.
func ensureRoom(ctx context.Context, engine roomPutter, name string, settings room.Settings) error {
	had, err := engine.Room(ctx, name)
	if err != nil && !errors.Is(err, room.ErrNoRoom) {
		return err
	}
	if err == nil && reflect.DeepEqual(had.Room.Settings.WithDefaults(), settings.WithDefaults()) {
		return nil
	}
	_, _, err = engine.PutRoom(ctx, name, settings)
	return err
}

// newRoomOfFlags creates the room of a gate, or changes the settings that its flags name. The object
// has the form of the API; it is empty if no flag was given.
func newRoomOfFlags(engine roomPutter, name string, object map[string]any) *roomMaker {
	return &roomMaker{lifecycle.NewGroup(context.Background()), "room " + name, func(ctx context.Context) error {
		return ensureFlags(ctx, engine, name, object)
	}}
}

func ensureFlags(ctx context.Context, engine roomPutter, name string, flags map[string]any) error {
	had, err := engine.Room(ctx, name)
	missing := errors.Is(err, room.ErrNoRoom)
	switch {
	case missing && len(flags) == 0:
		return exit.Usage("there is no room %s yet: say how it lets people in, with --capacity 200, or --batch 500 --interval 1m --stay 15m", name)
	case err != nil && !missing:
		return err
	case len(flags) == 0:
		return nil
	}
	object := map[string]any{}
	if mode, given := flags["mode"]; !missing && (!given || mode == had.Room.Settings.Mode || mode == string(had.Room.Settings.Mode)) {
		// Settings of the other mode must not stay.
		text, err := json.Marshal(had.Room.Settings)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
	}
	maps.Copy(object, flags)
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var settings room.Settings
	if err := json.Unmarshal(text, &settings); err != nil {
		return wrongRoomFlag(err)
	}
	return wrongRoomFlag(ensureRoom(ctx, engine, name, settings))
}

// wrongRoomFlag turns an error in settings into a usage error.
func wrongRoomFlag(err error) error {
	var wrong *room.SettingsError
	if errors.As(err, &wrong) {
		return exit.Usage("%w", err)
	}
	return err
}
