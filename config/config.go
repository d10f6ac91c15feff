package config

import (
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
)

// Config holds the settings of the binary. [Settings] says for each what it
// means, its unit and its default.
type Config struct {
	// DataDir is the directory of everything durable.
	DataDir string
	// HTTP is the address to serve at, host:port.
	HTTP string
	Log  Log
	// Pprof serves profiles of the process.
	Pprof bool
	// DiskReserve is the free space, in bytes, below which nothing new is
	// accepted.
	DiskReserve int64
	// State is where the state of rooms and of bulk is.
	State State
	// BulkShards is how many shards bulk has in a state that is shared; 0 is what it has.
	BulkShards int
	// Instance names this instance among those that share a state; empty is the host's
	// name and the HTTP address.
	Instance string
	Tracing  Tracing
	Cluster  Cluster
	Topic    Topic
	Bulk     bulk.Config
	Webhook  Webhook
	Room     Room
	Gate     Gate

	// sources has where each value came from, by key; a key that is missing has
	// its default.
	sources map[string]string
}

// Log says what is logged, and how.
type Log struct {
	Level slog.Level
	// Format is ops.LogText or ops.LogJSON.
	Format string
}

// Webhook says how jobs are sent as HTTP requests; see webhook.Options.
type Webhook struct {
	Secrets       Secrets
	TargetSecrets map[string]Secrets
	// MaxResponseBytes is how much of an answer is read as the result.
	MaxResponseBytes int64
	IdleConnections  int
}

// Options returns the options of the handler of webhooks.
func (w *Webhook) Options() webhook.Options {
	options := webhook.Options{
		Secrets: w.Secrets, TargetSecrets: make(map[string][]string, len(w.TargetSecrets)),
		MaxResponseBytes: w.MaxResponseBytes, IdleConnections: w.IdleConnections,
	}
	for name, secrets := range w.TargetSecrets {
		options.TargetSecrets[name] = secrets
	}
	return options
}

// Default returns the config with nothing set.
func Default() *Config {
	return &Config{
		DataDir:     "sluice-data",
		HTTP:        "127.0.0.1:8080",
		Log:         Log{Level: slog.LevelInfo, Format: "text"},
		DiskReserve: 256 << 20,
		State:       Embedded,
		Tracing:     defaultTracing(),
		Cluster:     defaultCluster(),
		Topic:       defaultTopic(),
		Room:        defaultRoom(),
		Gate:        defaultGate(),
		Bulk:        bulk.Config{}.WithDefaults(),
		Webhook: Webhook{
			MaxResponseBytes: webhook.DefaultResponseBytes, IdleConnections: webhook.DefaultIdleConnections,
		},
		sources: map[string]string{},
	}
}

// Load returns the defaults, overridden by the file, the environment and those
// of flags that were set, all checked. Environ is as of os.Environ; flags may be
// nil. An [*Error] is about a setting; other errors are about reading the file.
func Load(flags *pflag.FlagSet, environ []string) (*Config, error) {
	c := Default()
	if err := c.load(flags, environ); err != nil {
		return nil, err
	}
	for _, validate := range []func() error{c.validateParts, c.validateGate, c.validateCluster} {
		if err := validate(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// LoadGate is Load for a process that is a gate: gate.http has [DefaultGate] as its
// default. The room and the upstream may be empty.
func LoadGate(flags *pflag.FlagSet, environ []string) (*Config, error) {
	c := Default()
	c.Gate.HTTP = DefaultGate
	if err := c.load(flags, environ); err != nil {
		return nil, err
	}
	if c.State.IsOff() {
		return nil, &Error{Key: "state", Source: c.Source("state"), Why: "a gate needs rooms: want another state than off"}
	}
	return c, nil
}

func (c *Config) load(flags *pflag.FlagSet, environ []string) error {
	variables := variablesOf(environ)
	if path := filePath(flags, variables); path != "" {
		if err := c.readFile(path); err != nil {
			return err
		}
	}
	if err := c.readEnvironment(variables); err != nil {
		return err
	}
	if err := c.readFlags(flags); err != nil {
		return err
	}
	if err := c.readTelemetry(environ); err != nil {
		return err
	}
	return c.validate()
}

// Source says where the value of a key came from: "default", "file PATH:LINE",
// "environment NAME" or "flag --NAME".
func (c *Config) Source(key string) string {
	if source, ok := c.sources[key]; ok {
		return source
	}
	return "default"
}

// set sets the value of one setting from its text.
func (c *Config) set(s *Setting, text, source string) error {
	if err := s.parse(s.field(c), text); err != nil {
		return &Error{Key: s.Key, Source: source, Why: err.Error()}
	}
	c.sources[s.Key] = source
	return nil
}
