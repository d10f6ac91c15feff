package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Room says how rooms are served.
type Room struct {
	// TrustedProxies are the addresses and networks whose X-Forwarded-For is believed.
	TrustedProxies List
	// CORSOrigins are the origins whose pages may call the API.
	CORSOrigins List
	// MaxStreams is how many event streams there may be.
	MaxStreams int
	// Outbox is how many events of a room may wait to be published.
	Outbox int
	// RefreshInterval and ExpireInterval are those of room.Config.
	RefreshInterval, ExpireInterval time.Duration
	// Rooms are made, or changed, at the start.
	Rooms map[string]room.Settings
}

// Config returns the settings of the engine.
func (r *Room) Config() room.Config {
	return room.Config{Outbox: int64(r.Outbox), RefreshInterval: r.RefreshInterval, ExpireInterval: r.ExpireInterval}
}

func defaultRoom() Room {
	c := room.Config{}.WithDefaults()
	return Room{MaxStreams: 20_000, Outbox: int(c.Outbox), RefreshInterval: c.RefreshInterval, ExpireInterval: c.ExpireInterval}
}

var roomSettings = []Setting{
	{Key: "state", Usage: "where the state of rooms and of bulk is: embedded, in the data directory; or the URL of a Redis or Valkey, such as redis://host:6379, which several instances may share; or off: no rooms and no bulk actions. Others see the flags of a process: a password belongs into the file or the environment",
		field: func(c *Config) any { return &c.State }},
	{Key: "instance", Usage: "name of this instance among those that share a state: what an instance of its name had in flight when it ended runs again at once. Empty: the host's name and the HTTP address",
		field: func(c *Config) any { return &c.Instance }},
	{Key: "room.trusted_proxies", Usage: "addresses and networks of proxies in front of the API whose X-Forwarded-For is believed, such as 10.0.0.0/8",
		field: func(c *Config) any { return &c.Room.TrustedProxies }, check: checkProxies},
	{Key: "room.cors_origins", Usage: "origins of pages that may call the visitors' part of the API, such as https://shop.example.com; *: all",
		field: func(c *Config) any { return &c.Room.CORSOrigins }, check: checkOrigins},
	{Key: "room.max_streams", Usage: "event streams of visitors who wait that may be open; each takes a file descriptor",
		field: func(c *Config) any { return &c.Room.MaxStreams }, check: checkStreams},
	{Key: "room.outbox", Usage: "events of one room that may wait to be published; those beyond are dropped and counted",
		field: func(c *Config) any { return &c.Room.Outbox }},
	{Key: "room.refresh_interval", Usage: "how often the rooms are read again, for changes that other instances made",
		field: func(c *Config) any { return &c.Room.RefreshInterval }},
	{Key: "room.expire_interval", Usage: "longest time between two looks for what is due in a room",
		field: func(c *Config) any { return &c.Room.ExpireInterval }},
}

// optional lets an empty text pass.
func optional(check func(text string) error) func(text string) error {
	return func(text string) error {
		if text == "" {
			return nil
		}
		return check(text)
	}
}

func checkStreams(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n > 1_000_000 {
		return errors.New("want from 1 to 1,000,000")
	}
	return nil
}

func checkShards(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n > 256 {
		return errors.New("want from 0 to 256")
	}
	return nil
}

// validateRoom checks what depends on more than one value, and rooms as the API does.
func (c *Config) validateRoom() error {
	if err := c.State.Validate(); err != nil {
		return &Error{Key: "state", Source: c.Source("state"), Why: err.Error()}
	}
	if err := c.Room.Config().Validate(); err != nil {
		return c.located(err)
	}
	if len(c.Room.Rooms) > room.MaxRooms {
		return &Error{Key: roomsKey, Source: c.Source(roomsKey), Why: fmt.Sprintf("want at most %d rooms", room.MaxRooms)}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Room.Rooms)) {
		if err := c.validateOneRoom(name); err != nil {
			return err
		}
	}
	return c.validateTogether()
}

// validateOneRoom checks a room of the file.
func (c *Config) validateOneRoom(name string) error {
	key := roomsKey + "." + name
	if err := room.ValidName(name); err != nil {
		return &Error{Key: key, Source: c.Source(key), Why: err.Error()}
	}
	err := c.Room.Rooms[name].WithDefaults().Validate()
	var wrong *room.SettingsError
	switch {
	case errors.As(err, &wrong):
		return c.wrongRoom(key, wrong)
	case err != nil:
		return &Error{Key: key, Source: c.Source(key), Why: err.Error()}
	}
	return nil
}

// wrongRoom names the setting of the file that the API's name for it stands for.
func (c *Config) wrongRoom(key string, wrong *room.SettingsError) *Error {
	for _, s := range oneRoomSettings {
		if field, _, _ := strings.Cut(wrong.Field, "["); s.apiName() != field {
			continue
		}
		if own := key + "." + s.Key; c.sources[own] != "" {
			return &Error{Key: own, Source: c.Source(own), Why: wrong.Why}
		}
		return &Error{Key: key, Source: c.Source(key), Why: s.Key + ": " + wrong.Why}
	}
	return &Error{Key: key, Source: c.Source(key), Why: wrong.Error()}
}
