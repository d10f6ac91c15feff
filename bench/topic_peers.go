package bench

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Commands that are built here if they are not in PATH.
const (
	kliteModule      = "github.com/klaudworks/klite"
	kliteVersion     = "v0.2.0"
	jetStreamModule  = "github.com/nats-io/nats-server/v2"
	jetStreamVersion = "v2.15.2" // the version in go.mod at the root
)

// The compared program and its module.
const (
	sluiceModule  = "github.com/sluice-project/sluice"
	sluiceCommand = sluiceModule + "/cmd/sluice"
)

// buildWithin bounds the build of a command.
const buildWithin = 10 * time.Minute

// commands are built programs, by package.
type commands struct {
	mu   sync.Mutex
	path map[string]string
}

// command returns the path of a program: in PATH, or built here from the package of a module's
// version, or, without a version, from this checkout of sluice, as in a release without debug information.
func (e *Environment) command(ctx context.Context, name, pkg, version string) (string, error) {
	if version != "" {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	e.commands.mu.Lock()
	defer e.commands.mu.Unlock()
	if path := e.commands.path[pkg]; path != "" {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, buildWithin)
	defer cancel()
	path := filepath.Join(e.folder, filepath.Base(name))
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s", "-o", path, pkg)
	if version == "" {
		// In its own module, with the dependencies that users get.
		root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", sluiceModule).Output()
		if err != nil {
			return "", fmt.Errorf("where the source of %s is: %w", name, err)
		}
		build.Dir = string(bytes.TrimSpace(root))
	} else {
		build = exec.CommandContext(ctx, "go", "install", pkg+"@"+version)
		build.Env = append(build.Environ(), "GOBIN="+e.folder)
	}
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s is not in PATH, and cannot be built: %w\n%s", name, err, bytes.TrimSpace(output))
	}
	if e.commands.path == nil {
		e.commands.path = map[string]string{}
	}
	e.commands.path[pkg] = path
	return path, nil
}

// topicFacts builds missing programs that the measures of topic need, and returns their versions.
// Clusters need no other Kafka broker.
func (e *Environment) topicFacts(ctx context.Context, kafka bool) ([]Fact, error) {
	if _, err := e.command(ctx, "sluice", sluiceCommand, ""); err != nil {
		return nil, err
	}
	facts := []Fact{{"franz-go", moduleVersion("github.com/twmb/franz-go")}}
	type program struct{ name, pkg, version string }
	peers := []program{{"nats-server", jetStreamModule, jetStreamVersion}}
	if kafka {
		peers = append(peers, program{"klite", kliteModule + "/cmd/klite", kliteVersion})
	}
	for _, peer := range peers {
		path, err := e.command(ctx, peer.name, peer.pkg, peer.version)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", peer.name, err)
		}
		facts = append(facts, Fact{peer.name, info.Main.Version})
	}
	return facts, nil
}

// SluiceSettings are settings of sluice's broker.
type SluiceSettings struct {
	// Sync is the interval of fsyncs; 0: before each answer.
	Sync time.Duration
	// Linger is how long an append at an idle partition waits for others.
	Linger time.Duration
}

// The options of Kafka producers. Others are franz-go's own: idempotent, acks=all, five requests in
// flight.
var (
	// plainProducer does not compress, and does not linger.
	plainProducer = []kgo.Opt{
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(200_000),
	}
	// defaultProducer has franz-go's defaults: snappy, and a linger of 10 ms.
	defaultProducer = []kgo.Opt{}
)

// sluice returns sluice's broker, with a client of the given options.
func (e *Environment) sluice(name string, settings SluiceSettings, client []kgo.Opt) Broker {
	return Broker{Name: name, Start: func(ctx context.Context) (Server, error) {
		return e.startSluice(ctx, settings, client)
	}}
}

func (e *Environment) startSluice(ctx context.Context, settings SluiceSettings, client []kgo.Opt) (*kafkaServer, error) {
	command, err := e.command(ctx, "sluice", sluiceCommand, "")
	if err != nil {
		return nil, err
	}
	sync := "always"
	if settings.Sync > 0 {
		sync = settings.Sync.String()
	}
	http := e.Profile
	if http == "" {
		if http, err = freeAddress(ctx); err != nil {
			return nil, err
		}
	}
	return e.startKafka(ctx, command, func(folder, address string) []string {
		return []string{
			"serve", "--data", folder, "--kafka", address, "--topic-sync", sync, "--topic-linger", settings.Linger.String(),
			"--http", http, fmt.Sprintf("--pprof=%t", e.Profile != ""), "--log-level", "warn",
		}
	}, client)
}

// klite is klite with its defaults, except wal-max-disk-size: it removes older records above that
// size, so the size is large enough for all.
func (e *Environment) klite(name string, client []kgo.Opt) Broker {
	return Broker{Name: name, Start: func(ctx context.Context) (Server, error) {
		command, err := e.command(ctx, "klite", kliteModule+"/cmd/klite", kliteVersion)
		if err != nil {
			return nil, err
		}
		return e.startKafka(ctx, command, func(folder, address string) []string {
			return []string{"--listen", address, "--data-dir", folder, "--log-level", "error", "--wal-max-disk-size", "17179869184"}
		}, client)
	}}
}

// JetStreamName is the broker that sluice's latency is measured against.
const JetStreamName = "JetStream"

func (e *Environment) jetStream() Broker {
	return Broker{Name: JetStreamName, Start: func(ctx context.Context) (Server, error) {
		command, err := e.command(ctx, "nats-server", jetStreamModule, jetStreamVersion)
		if err != nil {
			return nil, err
		}
		return startJetStream(ctx, e.folder, command)
	}}
}

func (e *Environment) redisStreams() Broker {
	return Broker{Name: "Redis Streams", Start: func(ctx context.Context) (Server, error) { return startRedisStreams(ctx, e.folder, "always") }}
}

// Brokers returns all compared brokers, sluice first: each fsyncs acknowledged records, and no
// client compresses.
func (e *Environment) Brokers() []Broker {
	return slices.Concat(e.KafkaBrokers(), []Broker{e.jetStream(), e.redisStreams()})
}

// KafkaBrokers returns the brokers with the Kafka protocol, with a client that does not compress.
func (e *Environment) KafkaBrokers() []Broker {
	return []Broker{e.sluice("sluice", SluiceSettings{}, plainProducer), e.klite("klite", plainProducer)}
}

// DefaultClients returns the same brokers with a client of franz-go's defaults.
func (e *Environment) DefaultClients() []Broker {
	return []Broker{e.sluice("sluice", SluiceSettings{}, defaultProducer), e.klite("klite", defaultProducer)}
}
