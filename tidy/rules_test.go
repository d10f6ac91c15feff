package tidy

// rule is what one package may import.
type rule struct {
	// imports are the packages of this module that its code may import.
	imports []string
	// refuses are packages of other modules, with those below them, that its code must not import:
	// they would bring I/O or edges into its core.
	refuses []string
	// testOnly packages may be imported only by tests, and by each other.
	testOnly bool
	// virtualTime means that every test of the package runs in a synctest bubble, so sleeping in
	// any of its files is waiting in virtual time.
	virtualTime bool
}

// packages names every package of the module, by its folder.
var packages = map[string]rule{
	"cmd/sluice": {imports: []string{"internal/cli"}},

	"internal/cli": {imports: []string{
		"access", "internal/cli/brokers", "internal/cli/bulk", "internal/cli/cluster", "internal/cli/data", "internal/cli/demo", "internal/cli/exit", "internal/cli/group", "internal/cli/profile", "internal/cli/quota", "internal/cli/remote", "internal/cli/room", "internal/cli/serve", "internal/cli/token", "internal/cli/top", "internal/cli/topic",
	}},
	"internal/cli/exit":    {imports: []string{"config"}},
	"internal/cli/term":    {},
	"internal/cli/input":   {imports: []string{"bulk/upload", "internal/cli/exit"}},
	"internal/cli/remote":  {imports: []string{"internal/cli/exit", "internal/cli/profile", "internal/cli/term", "internal/cli/trust", "topic/api"}},
	"internal/cli/brokers": {imports: []string{"internal/cli/exit", "internal/cli/profile", "internal/cli/term", "internal/cli/trust"}},
	"internal/cli/profile": {imports: []string{"internal/cli/exit", "internal/cli/term"}},
	"internal/cli/trust":   {imports: []string{"internal/cli/exit", "internal/cli/profile", "internal/renew"}},
	"internal/cli/top":     {imports: []string{"internal/cli/exit", "internal/cli/remote", "internal/cli/term"}},
	"internal/cli/events":  {imports: []string{"access", "access/audit", "bulk", "room", "topic", "topic/broker"}},
	"internal/cli/serve": {imports: []string{
		"access", "access/api", "access/audit", "access/filestore", "access/jwks", "access/metastore", "access/redisstore", "bulk", "bulk/api", "bulk/engine", "bulk/pebblestore", "bulk/redisstore", "bulk/webhook", "config", "internal/backup", "internal/bundle", "internal/cli/events", "internal/cli/exit", "internal/cli/input", "internal/clusterkey", "internal/connlimit", "internal/fsync", "internal/renew", "lifecycle", "ops", "room", "room/api", "room/engine", "room/gate", "room/pebblestore", "room/redisstore", "room/watch", "topic", "topic/api", "topic/broker", "topic/filestore", "topic/kafka", "topic/kafka/auth", "topic/migrate", "topic/natsstore", "web",
	}},
	"internal/cli/bulk": {imports: []string{
		"bulk", "bulk/api/wire", "bulk/client", "bulk/pebblestore", "bulk/redisstore", "bulk/webhook", "config", "internal/cli/bulk/intake", "internal/cli/bulk/local", "internal/cli/bulk/report", "internal/cli/exit", "internal/cli/input", "internal/cli/remote", "internal/cli/term", "ops",
	}},
	"internal/cli/bulk/intake":    {imports: []string{"bulk", "bulk/upload", "internal/cli/brokers", "internal/cli/exit", "internal/cli/input", "internal/cli/term"}},
	"internal/cli/bulk/local":     {imports: []string{"bulk", "bulk/api", "bulk/engine", "bulk/pebblestore", "bulk/webhook", "ops"}},
	"internal/cli/bulk/localtest": {imports: []string{"bulk", "bulk/engine", "bulk/webhook", "internal/cli/bulk/local"}, testOnly: true},
	"internal/cli/bulk/report":    {imports: []string{"bulk", "bulk/engine", "internal/cli/term"}},
	"internal/cli/room":           {imports: []string{"config", "internal/cli/exit", "internal/cli/input", "internal/cli/remote", "internal/cli/term", "room", "room/client"}},
	"internal/cli/topic": {imports: []string{
		"bulk/upload", "internal/cli/brokers", "internal/cli/exit", "internal/cli/input", "internal/cli/profile", "internal/cli/remote", "internal/cli/term", "internal/cli/trust", "ops", "topic", "topic/api", "topic/catalog", "topic/convert", "topic/filestore", "topic/migrate", "topic/natsstore",
	}},
	"internal/cli/token":   {imports: []string{"access/api", "internal/cli/remote", "internal/cli/term"}},
	"internal/cli/quota":   {imports: []string{"access/api", "internal/cli/exit", "internal/cli/remote", "internal/cli/term"}},
	"internal/cli/group":   {imports: []string{"internal/cli/brokers", "internal/cli/exit", "internal/cli/term"}},
	"internal/cli/cluster": {imports: []string{"internal/cli/exit", "internal/cli/remote", "internal/cli/term", "topic/api"}},
	"internal/cli/data":    {imports: []string{"access", "access/filestore", "bulk/pebblestore", "internal/backup", "internal/bundle", "internal/cli/brokers", "internal/cli/exit", "internal/cli/remote", "internal/cli/term", "internal/connlimit", "room/pebblestore", "topic/filestore"}},
	"internal/cli/demo": {imports: []string{
		"bulk", "bulk/engine", "bulk/upload", "bulk/webhook", "examples", "internal/cli/bulk/intake", "internal/cli/bulk/local", "internal/cli/bulk/report", "internal/cli/events", "internal/cli/exit", "internal/cli/input", "internal/cli/term", "lifecycle", "ops", "room", "room/api", "room/client", "room/engine", "room/gate", "room/pebblestore", "room/watch", "topic", "topic/broker", "topic/filestore", "topic/kafka",
	}},
	"internal/cli/clitest": {imports: []string{"internal/cli/exit", "internal/testkit/until", "topic", "topic/api", "topic/broker", "topic/kafka", "topic/storetest"}, testOnly: true},

	"config": {imports: []string{"access", "bulk", "bulk/webhook", "room", "topic", "internal/spelling", "room/engine"}},
	"ops":    {imports: []string{"access", "access/audit", "internal/connlimit", "internal/edge", "internal/edge/problem", "internal/retry", "lifecycle"}, refuses: []string{"google.golang.org/grpc"}},

	"access":            {imports: []string{"internal/clientnet", "lifecycle"}, refuses: []string{"net/http", "os", pebble, redis, "github.com/spf13"}},
	"access/jwks":       {},
	"access/audit":      {imports: []string{"access", "internal/clientnet", "lifecycle"}, refuses: []string{"net/http", pebble, redis}},
	"access/filestore":  {imports: []string{"access"}, refuses: []string{"net"}},
	"access/redisstore": {imports: []string{"access", "internal/rediskv"}, refuses: []string{pebble}},
	"access/api":        {imports: []string{"access", "access/audit", "internal/edge", "internal/edge/problem"}, refuses: []string{pebble, redis, nats}},
	"access/metastore":  {imports: []string{"access", "topic"}, refuses: []string{"net", pebble, nats}},
	"access/storetest":  {imports: []string{"access"}, testOnly: true},

	"web": {imports: []string{"access", "access/audit", "bulk", "bulk/engine", "lifecycle", "room", "room/engine", "topic", "topic/broker", "topic/delay", "topic/group"}, refuses: []string{pebble, nats, redis}},

	"bulk": {
		imports: []string{"internal/autorate", "internal/ranks", "internal/urlprefix"},
		refuses: []string{"net/http", "os", pebble, "github.com/spf13", otelSDK, otelExporters, cel, prometheus},
	},
	"bulk/engine": {
		imports: []string{"bulk", "bulk/aggregate", "bulk/keys", "internal/cron", "internal/ranks", "lifecycle"},
		refuses: []string{"net/http", "os", pebble, "github.com/spf13", otelSDK, otelExporters},
	},
	"bulk/keys":        {imports: []string{"bulk"}, refuses: []string{pebble, "net", "os"}},
	"bulk/api":         {imports: []string{"access", "access/audit", "bulk", "bulk/api/wire", "bulk/engine", "bulk/upload", "internal/edge", "internal/tracing"}, refuses: []string{pebble}},
	"bulk/api/wire":    {imports: []string{"internal/edge/problem"}, refuses: []string{pebble, "net"}},
	"bulk/pebblestore": {imports: []string{"bulk", "bulk/keys", "internal/pebblekv", "internal/ranks"}, refuses: []string{"net"}},
	"bulk/redisstore":  {imports: []string{"bulk", "bulk/keys", "internal/rediskv", "internal/retry", "lifecycle"}, refuses: []string{pebble}},
	"bulk/client":      {imports: []string{"bulk", "bulk/api/wire", "internal/jsonclient", "lifecycle"}, refuses: []string{pebble, "github.com/danielgtaylor"}},
	"bulk/bulktest":    {imports: []string{"bulk", "bulk/engine", "bulk/pebblestore"}, testOnly: true},
	"bulk/storetest":   {imports: []string{"bulk", "internal/testkit/rapidtest"}, testOnly: true, virtualTime: true},
	"bulk/aggregate":   {imports: []string{"bulk"}, refuses: []string{pebble, "net"}},
	"bulk/upload":      {refuses: []string{pebble, "net"}},
	"bulk/webhook":     {imports: []string{"bulk", "internal/tracing"}, refuses: []string{pebble}},

	"topic": {
		imports: []string{"internal/spelling"},
		refuses: []string{"net", "os", nats, "github.com/spf13", cel, "github.com/twmb", "golang.org/x"},
	},
	"topic/catalog":      {imports: []string{"topic"}, refuses: []string{"net", "os", nats, cel}},
	"topic/compact":      {imports: []string{"topic", "topic/catalog"}, refuses: []string{"net", "os", nats, cel}},
	"topic/view":         {imports: []string{"topic"}, refuses: []string{"net", "os", nats}},
	"topic/delay":        {imports: []string{"internal/ranks", "lifecycle", "topic"}, refuses: []string{"net", "os", nats, cel}},
	"topic/group":        {imports: []string{"lifecycle", "topic", "topic/catalog", "topic/group/assign", "topic/share"}, refuses: []string{"net", "os", nats, cel}},
	"topic/group/assign": {imports: []string{"topic"}, refuses: []string{"net", "os", nats, cel}},
	"topic/share":        {imports: []string{"topic"}, refuses: []string{"net", "os", nats, cel}},
	"topic/spans":        {imports: []string{"topic"}, refuses: []string{"net", "os", nats, cel, otelSDK, otelExporters}},
	"topic/txn":          {imports: []string{"lifecycle", "topic", "topic/catalog"}, refuses: []string{"net", "os", nats, cel}},
	"topic/broker": {
		imports: []string{"lifecycle", "topic", "topic/catalog", "topic/compact", "topic/delay", "topic/group", "topic/group/assign", "topic/share", "topic/spans", "topic/txn", "topic/view"},
		refuses: []string{"net", "os", nats, cel, "github.com/spf13", otelSDK, otelExporters},
	},
	"topic/migrate": {imports: []string{"internal/clusterkey", "lifecycle", "topic", "topic/catalog", "topic/compact", "topic/delay", "topic/group", "topic/txn"}, refuses: []string{nats, cel}},

	"topic/kafka": {
		imports: []string{"internal/connlimit", "internal/turns", "lifecycle", "topic", "topic/broker", "topic/catalog", "topic/group", "topic/group/assign", "topic/kafka/auth", "topic/share", "topic/spans", "topic/txn", "topic/view"},
		refuses: []string{nats, otelSDK, otelExporters},
	},

	"topic/kafka/auth":      {},
	"topic/kafka/kafkatest": {testOnly: true},

	"topic/convert":   {imports: []string{"topic"}, refuses: []string{pebble, nats}},
	"topic/filestore": {imports: []string{"internal/pebblekv", "lifecycle", "topic"}, refuses: []string{"net", nats}},
	"topic/natsstore": {imports: []string{"internal/clusterkey", "internal/renew", "lifecycle", "topic"}},
	"topic/api":       {imports: []string{"access", "internal/edge", "internal/edge/problem", "topic", "topic/broker", "topic/delay", "topic/group"}, refuses: []string{nats}},
	"topic/storetest": {imports: []string{"topic"}, testOnly: true},
	"room/client":     {imports: []string{"room", "internal/jsonclient"}, refuses: []string{pebble, redis}},
	"room/proxied":    {refuses: []string{pebble, redis}},
	"room/api":        {imports: []string{"access", "internal/edge", "internal/edge/problem", "internal/tracing", "lifecycle", "room", "room/engine", "room/proxied", "room/watch"}, refuses: []string{pebble, redis}},
	"room/watch":      {imports: []string{"internal/ranks", "lifecycle", "room", "room/engine"}, refuses: []string{pebble, redis}},
	"room/gate": {
		imports: []string{"internal/tracing", "room", "room/engine", "room/proxied", "room/watch"},
		refuses: []string{pebble, redis, otelSDK, otelExporters},
	},
	"room/pebblestore": {imports: []string{"internal/pebblekv", "internal/ranks", "room"}, refuses: []string{"net"}},
	"room": {
		imports: []string{"internal/spelling"},
		refuses: []string{"net/http", "os", pebble, redis, "github.com/spf13", prometheus, jwt},
	},
	"room/engine": {
		imports: []string{"internal/autorate", "internal/clientnet", "internal/cron", "lifecycle", "room"},
		refuses: []string{"net/http", "os", pebble, redis, "github.com/spf13", otelSDK, otelExporters},
	},
	"room/redisstore":        {imports: []string{"internal/rediskv", "room"}, refuses: []string{pebble}},
	"room/storetest":         {imports: []string{"internal/testkit/rapidtest", "room"}, testOnly: true, virtualTime: true},
	"lifecycle":              {refuses: []string{"github.com", "net"}},
	"internal/backup":        {imports: []string{"internal/edge", "internal/edge/problem"}, refuses: []string{pebble, nats, "github.com/spf13"}},
	"internal/bundle":        {imports: []string{"internal/edge", "internal/edge/problem"}, refuses: []string{pebble, redis, nats, "github.com/spf13"}},
	"internal/clusterkey":    {refuses: []string{"github.com", "net", "os"}},
	"internal/clientnet":     {refuses: []string{"github.com", "net/http", "os"}},
	"internal/connlimit":     {imports: []string{"internal/clientnet"}, refuses: []string{pebble, redis, "net/http"}},
	"internal/edge":          {imports: []string{"access", "internal/edge/problem"}},
	"internal/edge/edgetest": {imports: []string{"internal/edge"}, testOnly: true},
	"internal/edge/problem":  {refuses: []string{"github.com", "net"}},
	"internal/pebblekv":      {refuses: []string{"net"}},
	"internal/rediskv":       {refuses: []string{pebble}},
	"internal/fsync":         {imports: []string{"lifecycle"}, refuses: []string{"net"}},
	"internal/jsonclient":    {imports: []string{"internal/edge/problem", "internal/retry"}, refuses: []string{pebble, "github.com/danielgtaylor"}},
	"internal/renew":         {refuses: []string{"github.com", "net/http"}},
	"internal/cron":          {refuses: []string{"net", "os"}},
	"internal/autorate":      {refuses: []string{"github.com", "net", "os"}},
	"internal/ranks":         {refuses: []string{"github.com", "net", "os"}},
	"internal/retry":         {refuses: []string{"github.com", "net", "os"}},
	"internal/tracing":       {refuses: []string{otelSDK, otelExporters}},
	"internal/urlprefix":     {refuses: []string{"github.com", "net/http", "os"}},
	"internal/turns":         {refuses: []string{"github.com", "net", "os"}},
	"internal/spelling":      {refuses: []string{"github.com", "net", "os"}},
	"examples":               {},
	"examples/embedded":      {imports: []string{"bulk", "bulk/engine", "bulk/pebblestore"}},
	"sdk/go":                 {imports: []string{"bulk", "bulk/api/wire", "bulk/client", "room/client"}},
	"examples/typed":         {imports: []string{"bulk", "bulk/engine", "bulk/pebblestore"}},

	"examples/room-middleware": {imports: []string{"room", "room/engine", "room/gate", "room/pebblestore", "room/watch"}},
	"examples/room-pass":       {},

	"examples/topic-at-most-once":  {},
	"examples/topic-at-least-once": {},
	"examples/topic-exactly-once":  {},
	"examples/topic-transactions":  {},
	"examples/topic-share":         {},
	"examples/kill":                {imports: []string{"internal/testkit/until", "topic", "topic/broker", "topic/filestore", "topic/kafka"}, testOnly: true},

	// Modules of their own.
	"bench":                    {imports: []string{"bulk", "bulk/engine", "bulk/pebblestore", "bulk/redisstore", "room", "room/redisstore"}},
	"bench/cmd/compare":        {imports: []string{"bench"}},
	"outbox":                   {imports: []string{"bulk/api/wire", "bulk/client", "internal/retry"}},
	"outbox/cmd/sluice-outbox": {imports: []string{"bulk/client", "outbox"}},
	"e2e/clients":              {testOnly: true},
	"e2e/browser":              {testOnly: true},
	"deploy/kubernetes":        {testOnly: true},
	"docs/site":                {testOnly: true},

	"internal/manpages":          {imports: []string{"internal/cli"}},
	"internal/termsvg":           {},
	"internal/testkit/certtest":  {testOnly: true},
	"internal/testkit/disktest":  {testOnly: true},
	"internal/testkit/earlier":   {testOnly: true},
	"internal/testkit/leaks":     {testOnly: true},
	"internal/testkit/ports":     {testOnly: true},
	"internal/testkit/proxytest": {imports: []string{"internal/testkit/ports", "internal/testkit/until"}, testOnly: true},
	"internal/testkit/puzzle":    {testOnly: true},
	"internal/testkit/rapidtest": {testOnly: true},
	"internal/testkit/redistest": {testOnly: true},
	"internal/testkit/until":     {testOnly: true},

	"sim": {testOnly: true, virtualTime: true},
	"e2e": {testOnly: true},

	"e2e/cluster":         {testOnly: true},
	"e2e/cluster/history": {testOnly: true},
	"e2e/cluster/netlab":  {testOnly: true},

	"deploy": {testOnly: true},

	"tidy": {testOnly: true},
}

const (
	pebble = "github.com/cockroachdb/pebble"
	nats   = "github.com/nats-io"
	cel    = "cel.dev/cel-go"
	redis  = "github.com/redis"

	prometheus    = "github.com/prometheus"
	jwt           = "github.com/golang-jwt"
	otelAPI       = "go.opentelemetry.io/otel"
	otelSDK       = "go.opentelemetry.io/otel/sdk"
	otelExporters = "go.opentelemetry.io/otel/exporters"
)

// light are all packages outside the standard library that programs which call a server contain, by
// the package with which they call it. A name stands for the packages below it too.
var light = map[string][]string{
	"bulk/client": {
		module + "/bulk", module + "/bulk/api/wire", module + "/bulk/client", module + "/internal/autorate", module + "/internal/edge/problem",
		module + "/internal/jsonclient", module + "/internal/ranks", module + "/internal/retry", module + "/internal/urlprefix", module + "/lifecycle",
		otelAPI, "github.com/cespare/xxhash/v2",
	},
	"room/client": {
		module + "/internal/edge/problem", module + "/internal/jsonclient", module + "/internal/retry", module + "/internal/spelling",
		module + "/room", module + "/room/client",
	},
}

// notInTheBinary are packages that only tests need.
var notInTheBinary = []string{"testing", "net/http/httptest", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/anishathalye/porcupine"}

// notInTheModule are modules that only bench/, outbox/, e2e/clients/ and e2e/browser/ need. They must not
// reach users: go.mod at the root must not name them.
var notInTheModule = []string{
	"github.com/hibiken/asynq", "github.com/riverqueue/river", "github.com/jackc/pgx", "github.com/redis/go-redis",
	"github.com/chromedp/chromedp", "github.com/klaudworks/klite", "github.com/IBM/sarama", "github.com/segmentio/kafka-go",
	"github.com/confluentinc/confluent-kafka-go",
}

// The most lines of a file and of a function.
const (
	maxFileLines = 600
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
var longFuncs = map[string]ratchet{}

// maxFolderFiles is the most files of code in a folder, without tests.
const maxFolderFiles = 45

// largeFolders are the exceptions from maxFolderFiles: a number of files that may only
// fall.
var largeFolders = map[string]ratchet{
	"topic/kafka": {70, "one file for each Kafka request"},
}

// The most words of README.md and lines of docs/ARCHITECTURE.md.
const (
	maxReadmeWords       = 600
	maxArchitectureLines = 150
)

// maxPhrases is how many of the phrases in words_test.go remain: it may only fall.
const maxPhrases = 0

// historic documents describe the past, so paths in them need not exist any more.
var historic = []string{"CHANGELOG.md", "docs/decisions/"}
