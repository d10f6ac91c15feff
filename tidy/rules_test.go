package tidy

// rule says what one package may import.
type rule struct {
	// imports are the packages of this module that its code may import.
	imports []string
	// refuses are packages of others, with those below them, that its code must
	// not import: what keeps its core free of I/O and of edges.
	refuses []string
	// testOnly packages may be imported by tests, and by each other, only.
	testOnly bool
	// virtualTime says that every test of the package runs in a synctest bubble,
	// so that sleeping there is waiting in virtual time, in whatever file.
	virtualTime bool
}

// packages names every package of the module, by its folder.
var packages = map[string]rule{
	"cmd/sluice": {imports: []string{
		"bulk", "bulk/api", "bulk/api/wire", "bulk/client", "bulk/pebblestore", "bulk/redisstore", "bulk/upload", "bulk/webhook", "config", "examples", "lifecycle", "ops", "room", "room/api", "room/client", "room/gate", "room/pebblestore", "room/redisstore", "room/watch", "topic", "topic/api", "topic/kafka", "topic/move", "topic/natsstore",
	}},
	"config": {imports: []string{"bulk", "bulk/webhook", "room", "topic", "spelling"}},
	"ops":    {imports: []string{"lifecycle"}},

	"bulk": {
		imports: []string{"lifecycle"},
		refuses: []string{"net/http", "os", pebble, "github.com/spf13", otelSDK, otelExporters},
	},
	"bulk/api":         {imports: []string{"bulk", "bulk/api/wire", "bulk/upload", "tracing"}, refuses: []string{pebble}},
	"bulk/api/wire":    {refuses: []string{pebble, "net"}},
	"bulk/pebblestore": {imports: []string{"bulk", "pebblekv"}, refuses: []string{"net"}},
	"bulk/redisstore":  {imports: []string{"bulk", "rediskv", "retry"}, refuses: []string{pebble}},
	"bulk/client":      {imports: []string{"bulk", "bulk/api/wire", "retry"}, refuses: []string{pebble, "github.com/danielgtaylor"}},
	"bulk/bulktest":    {imports: []string{"bulk", "bulk/pebblestore"}, testOnly: true},
	"bulk/storetest":   {imports: []string{"bulk"}, testOnly: true, virtualTime: true},
	"bulk/upload":      {refuses: []string{pebble, "net"}},
	"bulk/webhook":     {imports: []string{"bulk", "tracing"}, refuses: []string{pebble}},

	"topic": {
		imports: []string{"lifecycle", "spelling"},
		refuses: []string{"net", "os", nats, "github.com/spf13"},
	},

	"topic/kafka": {imports: []string{"lifecycle", "topic"}, refuses: []string{nats}},

	"topic/natsstore": {imports: []string{"lifecycle", "topic"}},
	"topic/api":       {imports: []string{"topic"}, refuses: []string{nats}},
	"topic/move":      {imports: []string{"topic"}, refuses: []string{nats}},
	"topic/storetest": {imports: []string{"topic"}, testOnly: true},
	"room/client":     {imports: []string{"room", "retry"}, refuses: []string{pebble, redis}},
	"room/proxied":    {refuses: []string{pebble, redis}},
	"room/api":        {imports: []string{"room", "room/proxied", "room/watch"}, refuses: []string{pebble, redis}},
	"room/watch":      {imports: []string{"lifecycle", "room"}, refuses: []string{pebble, redis}},
	"room/gate": {
		imports: []string{"room", "room/proxied", "room/watch"},
		refuses: []string{pebble, redis, "github.com/prometheus"},
	},
	"room/pebblestore": {imports: []string{"room", "pebblekv"}, refuses: []string{"net"}},
	"room": {
		imports: []string{"lifecycle", "spelling"},
		refuses: []string{"net/http", "os", pebble, redis, "github.com/spf13"},
	},
	"room/redisstore":   {imports: []string{"rediskv", "room"}, refuses: []string{pebble}},
	"room/storetest":    {imports: []string{"room"}, testOnly: true, virtualTime: true},
	"lifecycle":         {refuses: []string{"github.com", "net"}},
	"pebblekv":          {refuses: []string{"net"}},
	"rediskv":           {refuses: []string{pebble}},
	"retry":             {refuses: []string{"github.com", "net", "os"}},
	"tracing":           {refuses: []string{otelSDK, otelExporters}},
	"spelling":          {refuses: []string{"github.com", "net", "os"}},
	"examples":          {},
	"examples/embedded": {imports: []string{"bulk", "bulk/pebblestore"}},
	"examples/typed":    {imports: []string{"bulk", "bulk/pebblestore"}},

	"examples/room-middleware": {imports: []string{"room", "room/gate", "room/pebblestore", "room/watch"}},
	"examples/room-pass":       {},

	"examples/topic-at-most-once":  {},
	"examples/topic-at-least-once": {},
	"examples/topic-exactly-once":  {},
	"examples/kill":                {imports: []string{"topic", "topic/kafka", "topic/natsstore"}, testOnly: true},

	// Modules of their own.
	"bench":             {imports: []string{"bulk", "bulk/pebblestore", "bulk/redisstore", "room", "room/redisstore"}},
	"bench/cmd/compare": {imports: []string{"bench"}},
	"e2e/clients":       {testOnly: true},
	"e2e/browser":       {testOnly: true},

	"rapidtest": {testOnly: true},
	"redistest": {testOnly: true},

	"sim": {testOnly: true, virtualTime: true},
	"e2e": {testOnly: true},

	"e2e/cluster":         {testOnly: true},
	"e2e/cluster/history": {testOnly: true},
	"e2e/cluster/netlab":  {testOnly: true},

	"tidy": {testOnly: true},
}

const (
	pebble = "github.com/cockroachdb/pebble"
	nats   = "github.com/nats-io"
	redis  = "github.com/redis"

	otelSDK       = "go.opentelemetry.io/otel/sdk"
	otelExporters = "go.opentelemetry.io/otel/exporters"
)

// notInTheBinary are packages that only tests need.
var notInTheBinary = []string{"testing", "net/http/httptest", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/anishathalye/porcupine"}

// notInTheModule are modules that only bench/, e2e/clients/ and e2e/browser/ need, so that they
// never reach users: go.mod at the root must not name them.
var notInTheModule = []string{
	"github.com/hibiken/asynq", "github.com/riverqueue/river", "github.com/jackc/pgx", "github.com/redis/go-redis",
	"github.com/chromedp/chromedp", "github.com/klaudworks/klite", "github.com/IBM/sarama", "github.com/segmentio/kafka-go",
}

// The most lines of a file and of a function.
const (
	maxFileLines = 400
	maxFuncLines = 60
)

// ratchet is an exception from a size: a number of lines that may only fall.
type ratchet struct {
	lines  int
	reason string
}

// longFiles are the exceptions from maxFileLines, by path.
var longFiles = map[string]ratchet{}

// longFuncs are the exceptions from maxFuncLines, by path and name.
var longFuncs = map[string]ratchet{
	"bulk/move.go Action.Apply": {69, "the status machine: one switch with a case for each move reads as a table"},
}

// historic documents tell of what was, so paths in them need not exist any more.
var historic = []string{"CHANGELOG.md", "docs/decisions/"}
