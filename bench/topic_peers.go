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

// What is built here where it is not in PATH.
const (
	kliteModule      = "github.com/klaudworks/klite"
	kliteVersion     = "v0.2.0"
	jetStreamModule  = "github.com/nats-io/nats-server/v2"
	jetStreamVersion = "v2.15.2" // that of go.mod at the root
)

// The program that is compared, and the module that it is of.
const (
	sluiceModule  = "github.com/sluice-project/sluice"
	sluiceCommand = sluiceModule + "/cmd/sluice"
)

// buildWithin bounds how long a command may take to be built.
const buildWithin = 10 * time.Minute

// commands are programs that were built, by the package they are of.
type commands struct {
	mu   sync.Mutex
	path map[string]string
}

// command returns where a program is: in PATH, or built here from the package
// of a module's version, or, without a version, of sluice as it is here.
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
	build := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
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

// topicFacts builds what the measures of topic need and is not installed, and
// tells what it is. Clusters need no other Kafka broker.
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
	// Sync is how often it fsyncs; 0: before each answer.
	Sync time.Duration
	// Linger is how long an append at an idle partition waits for others.
	Linger time.Duration
}

// The options of Kafka clients that produce. Those that are not named are
// franz-go's own: idempotent, acks=all, five requests under way.
var (
	// plainProducer does not compress, and does not wait for more.
	plainProducer = []kgo.Opt{
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(200_000),
	}
	// defaultProducer has franz-go's defaults: snappy, and a linger of 10 ms.
	defaultProducer = []kgo.Opt{}
)

// sluice is our broker, with a client of those options.
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
	return startKafka(ctx, e.folder, command, func(folder, address string) []string {
		return []string{
			"serve", "--data", folder, "--kafka", address, "--topic-sync", sync, "--topic-linger", settings.Linger.String(),
			"--http", http, fmt.Sprintf("--pprof=%t", e.Profile != ""), "--log-level", "warn",
		}
	}, client)
}

// klite is klite as it comes. It keeps no more on the disk than
// wal-max-disk-size, and throws away what is older: there is room for all here.
func (e *Environment) klite(name string, client []kgo.Opt) Broker {
	return Broker{Name: name, Start: func(ctx context.Context) (Server, error) {
		command, err := e.command(ctx, "klite", kliteModule+"/cmd/klite", kliteVersion)
		if err != nil {
			return nil, err
		}
		return startKafka(ctx, e.folder, command, func(folder, address string) []string {
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
	return Broker{Name: "Redis Streams", Start: func(ctx context.Context) (Server, error) { return startRedisStreams(ctx, e.folder) }}
}

// Brokers are all those compared, sluice first: each fsyncs what it
// acknowledges, and no client compresses.
func (e *Environment) Brokers() []Broker {
	return slices.Concat(e.KafkaBrokers(), []Broker{e.jetStream(), e.redisStreams()})
}

// KafkaBrokers are those that speak Kafka's protocol, with a client that does not
// compress.
func (e *Environment) KafkaBrokers() []Broker {
	return []Broker{e.sluice("sluice", SluiceSettings{}, plainProducer), e.klite("klite", plainProducer)}
}

// DefaultClients are the same with a client of franz-go's defaults.
func (e *Environment) DefaultClients() []Broker {
	return []Broker{e.sluice("sluice", SluiceSettings{}, defaultProducer), e.klite("klite", defaultProducer)}
}
