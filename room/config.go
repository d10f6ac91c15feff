package room

import (
	"fmt"
	"time"
)

// Config holds the settings of the engine. The zero value of each field means its
// default.
type Config struct {
	// Outbox is how many events of each room may wait to be published; those beyond
	// are dropped and counted, so that people are served in any case. Default
	// 1,000,000; from 1,000 to 100,000,000. Without a publisher none is kept.
	Outbox int64
	// RefreshInterval is how often the rooms are read again, and so after how long at
	// most a change that another instance made is seen by who did not run into it.
	// Default 1 s; from 100 ms to 10 s.
	RefreshInterval time.Duration
	// ExpireInterval is the longest time between two looks for what is due in a room
	// with anybody in it. What is due later is looked for then, to the moment: the
	// interval matters for what other instances did. Default 500 ms; from 10 ms to
	// 500 ms.
	ExpireInterval time.Duration
}

// WithDefaults returns the config with every unset field at its default.
func (c Config) WithDefaults() Config {
	orDefault(&c.Outbox, 1_000_000)
	orDefault(&c.RefreshInterval, time.Second)
	orDefault(&c.ExpireInterval, 500*time.Millisecond)
	return c
}

// Validate says which setting is out of range, and what would be right. It is
// meant for a config with defaults.
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
