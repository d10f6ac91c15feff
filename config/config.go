package config

import (
	"log/slog"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/room"
)

// Config holds the settings of the binary. [Settings] documents each.
type Config struct {
	// DataDir is the directory of everything durable.
	DataDir string
	// HTTP are the addresses to serve at; see Config.HTTPListeners.
	HTTP List
	// Public are the addresses of the public part of the API, or Off; see Config.PublicListeners.
	Public List
	// HTTPHosts are the names that requests over HTTP may ask for.
	HTTPHosts List
	// InsecureListen lets addresses that nothing protects be reached by others than this
	// machine; see Unprotected.
	InsecureListen bool
	// Connections is how many connections clients may have in all, 0: as many as the
	// process's open files allow; and ConnectionsPerClient how many one client.
	Connections, ConnectionsPerClient int
	TLS                               TLS
	Access                            Access
	Audit                             Audit
	Log                               Log
	// Pprof serves profiles of the process.
	Pprof bool
	// DiskReserve is the free space, in bytes, below which nothing new is accepted.
	DiskReserve int64
	// MemoryBudget is how many bytes of memory the process is meant to use; 0: see ops.SetMemoryBudget.
	MemoryBudget int64
	// State is where the state of rooms and of bulk is.
	State State
	// BulkShards is the number of shards of bulk in a shared state; 0: the number that
	// the state has.
	BulkShards int
	// Instance names this instance among those that share a state; empty: the host's
	// name and the HTTP address.
	Instance string
	Tracing  Tracing
	Cluster  Cluster
	Topic    Topic
	Bulk     bulk.Config
	Webhook  Webhook
	Room     Room
	Gate     Gate

	// file is the path of the file that was read; empty: none.
	file string
	// sources has the source of each value by its key; values without one are
	// defaults.
	sources map[string]string
}

// Log are the settings of logging.
type Log struct {
	Level slog.Level
	// Format is ops.LogText or ops.LogJSON.
	Format string
}

// Webhook are the settings of jobs that are sent as HTTP requests; see webhook.Options.
type Webhook struct {
	Secrets       Secrets
	TargetSecrets map[string]Secrets
	// MaxResponseBytes is how much of an answer is read as the result.
	MaxResponseBytes int64
	IdleConnections  int
	// Allow are the networks that webhooks may reach though they are not public.
	Allow List
	// Proxy is Off or proxyEnvironment.
	Proxy string
	// InlineTargets is inlineAuto, "true" or "false"; see Config.InlineTargets.
	InlineTargets string
}

// inlineAuto, as bulk.inline_targets, lets the address of http decide.
const inlineAuto = "auto"

// InlineTargets reports whether actions may give the whole URL of their target: by default where
// only this machine can create them.
func (c *Config) InlineTargets() bool {
	return c.Webhook.InlineTargets == "true" || c.Webhook.InlineTargets == inlineAuto && !slices.ContainsFunc(c.HTTPListeners(), Listener.exposed)
}

// proxyEnvironment, as bulk.webhook_proxy, is the proxies that the environment names.
const proxyEnvironment = "environment"

// Options returns the options of the handler of webhooks.
func (w *Webhook) Options() webhook.Options {
	options := webhook.Options{
		Secrets: w.Secrets, TargetSecrets: make(map[string][]string, len(w.TargetSecrets)),
		MaxResponseBytes: w.MaxResponseBytes, IdleConnections: w.IdleConnections,
		Allow: w.Allow.Prefixes(), EnvironmentProxy: w.Proxy == proxyEnvironment,
	}
	for name, secrets := range w.TargetSecrets {
		options.TargetSecrets[name] = secrets
	}
	return options
}

// Default returns the config with nothing set: the defaults of the schema, and for
// settings without one there, those of the parts.
func Default() *Config {
	rooms := room.Config{}.WithDefaults()
	c := &Config{
		Topic:   defaultTopic(),
		Room:    Room{Outbox: int(rooms.Outbox), RefreshInterval: rooms.RefreshInterval, ExpireInterval: rooms.ExpireInterval},
		Bulk:    bulk.Config{}.WithDefaults(),
		sources: map[string]string{},
	}
	for _, s := range c.schema() {
		if s.Default == "" {
			continue
		}
		if err := s.parse(s.Default); err != nil {
			panic(err) // all is constant
		}
	}
	return c
}

// Load returns the defaults, overridden by the file, the environment and the flags
// that were set, all checked. Environ is as of os.Environ; flags may be nil. An
// [*Error] is about a setting; other errors are about reading the file.
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

// LoadGate is Load for "sluice gate": the default of gate.http is [DefaultGate], and the
// room and the upstream may be empty.
func LoadGate(flags *pflag.FlagSet, environ []string) (*Config, error) {
	c := Default()
	c.Gate.HTTP = List{DefaultGate}
	if err := c.load(flags, environ); err != nil {
		return nil, err
	}
	if c.State.IsOff() {
		return nil, c.wrong("state", gateNeedsRooms)
	}
	return c, nil
}

func (c *Config) load(flags *pflag.FlagSet, environ []string) error {
	variables := variablesOf(environ)
	if c.file = filePath(flags, variables); c.file != "" {
		if err := c.readFile(c.file); err != nil {
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

// File returns the path of the file that was read; empty: none.
func (c *Config) File() string { return c.file }

// Source returns where the value of a key came from: "default", "file PATH:LINE",
// "environment NAME" or "flag --NAME".
func (c *Config) Source(key string) string {
	if source, ok := c.sources[key]; ok {
		return source
	}
	return "default"
}

// set sets the value of one setting of c from its text.
func (c *Config) set(s *Setting, text, source string) error {
	if err := s.parse(text); err != nil {
		return &Error{Key: s.Key, Source: source, Why: err.Error()}
	}
	c.sources[s.Key] = source
	return nil
}

// wrong returns the error about the value that a key has.
func (c *Config) wrong(key, why string) error {
	return &Error{Key: key, Source: c.Source(key), Why: why}
}

// Error says which setting is wrong.
type Error struct {
	// Key is the setting's key, or the text in its place.
	Key string
	// Source is where it was set, as of Config.Source.
	Source string
	// Why says what is wrong, and what would be right.
	Why string
}

func (e *Error) Error() string { return e.Source + ": " + e.Key + ": " + e.Why }
