package room

import (
	"cmp"
	"fmt"
	"time"
)

// Config holds the settings of the engine. The zero value of each field means its
// default.
type Config struct {
	// Outbox is how many events of each room may wait to be published; further events are
	// dropped and counted, so that visitors are served in any case. Default 1,000,000;
	// from 1,000 to 100,000,000. If no engine on the store has a publisher, no event is kept.
	Outbox int64
	// RefreshInterval is how often the rooms are read again, and so the longest time until
	// a change by another instance is seen. Default 1 s; from 100 ms to 10 s.
	RefreshInterval time.Duration
	// ExpireInterval is the longest time between two calls of Expire for a room with
	// anybody in it. Known deadlines are met to the moment: the interval matters for
	// operations of other instances. Default 500 ms; from 10 ms to 500 ms.
	ExpireInterval time.Duration
}

// WithDefaults returns the config with every unset field at its default.
func (c Config) WithDefaults() Config {
	c.Outbox = cmp.Or(c.Outbox, 1_000_000)
	c.RefreshInterval = cmp.Or(c.RefreshInterval, time.Second)
	c.ExpireInterval = cmp.Or(c.ExpireInterval, 500*time.Millisecond)
	return c
}

// Validate reports the first setting that is out of range, and its range. The config
// must have defaults.
func (c Config) Validate() error {
	checks := []struct {
		ok         bool
		name, want string
	}{
		{c.Outbox >= 1_000 && c.Outbox <= 100_000_000, "outbox", "from 1,000 to 100,000,000"},
		{c.RefreshInterval >= 100*time.Millisecond && c.RefreshInterval <= 10*time.Second, "refresh_interval", "from 100ms to 10s"},
		{c.ExpireInterval >= 10*time.Millisecond && c.ExpireInterval <= 500*time.Millisecond, "expire_interval", "from 10ms to 500ms"},
	}
	for _, check := range checks {
		if !check.ok {
			return fmt.Errorf("room.%s: want %s", check.name, check.want)
		}
	}
	return nil
}
