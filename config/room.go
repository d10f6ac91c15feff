package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// Room are the settings of rooms.
type Room struct {
	// TrustedProxies are the addresses and networks whose X-Forwarded-For is believed.
	TrustedProxies List
	// TokenKeys verify the tokens in which a shop says who a visitor is; see
	// room.ParseTokenKeys.
	TokenKeys Secrets
	// CORSOrigins are the origins whose pages may call the API.
	CORSOrigins List
	// MaxStreams is how many event streams there may be.
	MaxStreams int
	// Outbox is how many events of a room may wait to be published.
	Outbox int
	// RefreshInterval and ExpireInterval are those of room.Config.
	RefreshInterval, ExpireInterval time.Duration
	// Rooms are created, or changed, at the start.
	Rooms map[string]room.Settings
}

// Config returns the settings of the engine.
func (r *Room) Config() room.Config {
	return room.Config{Outbox: int64(r.Outbox), RefreshInterval: r.RefreshInterval, ExpireInterval: r.ExpireInterval}
}

// validateRoom checks settings that depend on each other, and rooms as the API does.
func (c *Config) validateRoom() error {
	if err := c.State.Validate(); err != nil {
		return c.wrong("state", err.Error())
	}
	if err := c.Room.Config().Validate(); err != nil {
		return c.located(err)
	}
	checkKeys := func(keys []string) error {
		_, err := engine.ParseTokenKeys(keys)
		return err
	}
	if err := c.Room.TokenKeys.Validate(checkKeys); err != nil {
		return c.wrong("room.token_keys", err.Error())
	}
	if len(c.Room.Rooms) > room.MaxRooms {
		return c.wrong(roomsKey, fmt.Sprintf("want at most %d rooms", room.MaxRooms))
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
		return c.wrong(key, err.Error())
	}
	err := engine.ValidateSettings(c.Room.Rooms[name])
	var wrong *room.SettingsError
	switch {
	case errors.As(err, &wrong):
		return c.wrongRoom(key, wrong)
	case err != nil:
		return c.wrong(key, err.Error())
	}
	return nil
}

// wrongRoom turns an error that has the API's name of a setting into one that has the
// name in the file.
func (c *Config) wrongRoom(key string, wrong *room.SettingsError) error {
	for _, s := range oneRoomSettings {
		if field, _, _ := strings.Cut(wrong.Field, "["); s.apiName() != field {
			continue
		}
		if own := key + "." + s.Key; c.sources[own] != "" {
			return c.wrong(own, wrong.Why)
		}
		return c.wrong(key, s.Key+": "+wrong.Why)
	}
	return c.wrong(key, wrong.Error())
}
