package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/watch"
)

// roomFolder is where rooms are in the data directory.
const roomFolder = "room"

// stateTimeout is how long opening the store of rooms may take.
const stateTimeout = 15 * time.Second

// rooms are the rooms of this process.
type rooms struct {
	part
	engine *room.Engine
	hub    *watch.Hub
}

// openRooms opens the store of rooms and mounts their API on the server. With a
// publisher that is nil no event is kept.
func openRooms(ctx context.Context, settings *config.Config, server *ops.Server, publisher room.Publisher, log *slog.Logger) (*rooms, error) {
	if settings.State.IsOff() {
		return &rooms{part: *noPart()}, nil
	}
	store, err := openRoomStore(ctx, settings, log)
	if err != nil {
		return nil, err
	}
	options := []room.Option{room.WithLogger(log)}
	if publisher != nil {
		options = append(options, room.WithPublisher(publisher))
	}
	engine, err := room.New(store, settings.Room.Config(), options...)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	hub := watch.New(engine, watch.WithMaxStreams(settings.Room.MaxStreams))
	handler := api.New(engine, hub, api.WithLogger(log), api.WithTrustedProxies(settings.Room.TrustedProxies.Prefixes()),
		api.WithOrigins(settings.Room.CORSOrigins...))
	for _, path := range []string{"/v1/rooms", "/v1/rooms/", "/v1/room-keys/", api.JWKSPath, api.DocumentPath} {
		server.Mux().Handle(path, handler)
	}
	server.Registry().MustRegister(engine.Collector(), hub.Collector())
	server.Ready("room", func(ctx context.Context) error {
		if _, err := store.Now(ctx); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
		return engine.Err()
	})
	opened := &rooms{engine: engine, hub: hub}
	opened.part = part{
		services: []lifecycle.Service{engine, hub, newRoomsOfFile(engine, settings.Room.Rooms)},
		close:    store.Close,
	}
	return opened, nil
}

// openRoomStore opens the store that the settings name.
func openRoomStore(ctx context.Context, settings *config.Config, log *slog.Logger) (room.Store, error) {
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
		Logger: log, DiskReserve: settings.DiskReserve,
	})
	if errors.Is(err, pebblestore.ErrInUse) {
		return nil, fmt.Errorf("%w; \"sluice serve\" with gate.http is a server and a gate in one process, and --state redis://… is shared by several", err)
	}
	if err != nil {
		return nil, err
	}
	return store, nil
}

// roomsOfFile makes and changes rooms at the start. It does nothing after that.
type roomsOfFile struct {
	*lifecycle.Group
	engine roomPutter
	rooms  map[string]room.Settings
}

// roomPutter is what making rooms needs of the engine.
type roomPutter interface {
	Room(ctx context.Context, name string) (room.View, error)
	PutRoom(ctx context.Context, name string, s room.Settings) (room.View, bool, error)
}

func newRoomsOfFile(engine roomPutter, of map[string]room.Settings) *roomsOfFile {
	return &roomsOfFile{lifecycle.NewGroup(context.Background()), engine, of}
}

// Name implements lifecycle.Service.
func (r *roomsOfFile) Name() string { return "rooms of the settings" }

// Start implements lifecycle.Service.
func (r *roomsOfFile) Start(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(r.rooms)) {
		if err := ensureRoom(ctx, r.engine, name, r.rooms[name]); err != nil {
			return fmt.Errorf("room %s: %w", name, err)
		}
	}
	return nil
}

// ensureRoom makes a room, or changes it if it differs.
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

// roomOfFlags makes the room of a gate as its flags say, or changes what they say.
type roomOfFlags struct {
	*lifecycle.Group
	engine roomPutter
	name   string
	// object is as the API takes it; empty if no flag was given.
	object map[string]any
}

func newRoomOfFlags(engine roomPutter, name string, object map[string]any) *roomOfFlags {
	return &roomOfFlags{lifecycle.NewGroup(context.Background()), engine, name, object}
}

// Name implements lifecycle.Service.
func (r *roomOfFlags) Name() string { return "room " + r.name }

// Start implements lifecycle.Service.
func (r *roomOfFlags) Start(ctx context.Context) error {
	had, err := r.engine.Room(ctx, r.name)
	missing := errors.Is(err, room.ErrNoRoom)
	switch {
	case missing && len(r.object) == 0:
		return wrongUsage("there is no room %s yet: say how it lets people in, with --capacity 200, or --batch 500 --interval 1m --stay 15m", r.name)
	case err != nil && !missing:
		return err
	case len(r.object) == 0:
		return nil
	}
	object := map[string]any{}
	if mode, given := r.object["mode"]; !missing && (!given || mode == had.Room.Settings.Mode || mode == string(had.Room.Settings.Mode)) {
		// Settings of the other mode could not stay.
		text, err := json.Marshal(had.Room.Settings)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
	}
	maps.Copy(object, r.object)
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var settings room.Settings
	if err := json.Unmarshal(text, &settings); err != nil {
		return wrongRoomFlag(err)
	}
	return wrongRoomFlag(ensureRoom(ctx, r.engine, r.name, settings))
}

// wrongRoomFlag makes a usage error of what the flags got wrong.
func wrongRoomFlag(err error) error {
	var wrong *room.SettingsError
	if errors.As(err, &wrong) {
		return wrongUsage("%w", err)
	}
	return err
}
