package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// sameFlag, as the flag of a command, is the flag that the setting has everywhere.
const sameFlag = "="

// schema returns all settings of c, in the order of the file.
func (c *Config) schema() []Setting {
	var all []Setting
	for _, part := range []func() []Setting{c.processSettings, c.accessSettings, c.serverSettings, c.tracingSettings, c.clusterSettings, c.topicSettings, c.roomSettings, c.gateSettings, c.bulkSettings, c.webhookSettings} {
		all = append(all, part()...)
	}
	return all
}

func (c *Config) processSettings() []Setting {
	return []Setting{
		{Key: "data", field: &c.DataDir, Default: "sluice-data", check: checkPath, gateFlag: sameFlag, migrateFlag: "from",
			Usage: "directory of everything durable, made if it is missing; one process at a time"},
		{Key: "http", field: &c.HTTP, Default: "127.0.0.1:8080", check: checkListeners("8080", "8443", ""), gateFlag: sameFlag,
			Usage: "address to serve HTTP at, host:port, with TLS if tls.cert_file is set; or several, each with a name and plain or tls: internal=plain://127.0.0.1:8080, public=tls://0.0.0.0:8443. Without accounts anybody who reaches it may use the API, so others than this machine need access.admin_token with TLS, tls.client_ca_file or insecure_listen"},
		{Key: "public", field: &c.Public, Default: Off, gateFlag: sameFlag, check: orWord(Off, checkListeners("8081", "8444", `, or "off"`), ""),
			Usage: "address of the part of HTTP that is for the public, host:port, or several, as of http: places in rooms, lotteries, the keys that verify passes, /healthz, and nothing for operators; off: none"},
		{Key: "http_hosts", field: &c.HTTPHosts, check: each(orWord("*", checkHost, "")), gateFlag: sameFlag,
			Usage: "names that requests to http may ask for, besides addresses, localhost and the names in the settings of addresses, such as sluice.internal; *: any, which lets a page of any site call the API by a name of its own"},
		{Key: "insecure_listen", field: &c.InsecureListen, gateFlag: sameFlag,
			Usage: "let http and kafka listen at addresses that others than this machine reach: anybody there may do everything, since nothing authenticates them. For networks of your own programs only"},
		{Key: "tls.cert_file", field: &c.TLS.CertFile, check: optional(checkFile),
			Usage: "path of the TLS certificate of http, public and kafka, with those between it and its root, in PEM, read again when it is renewed; none: no TLS. The gate has its own"},
		{Key: "tls.key_file", field: &c.TLS.KeyFile, check: optional(checkFile),
			Usage: "path of the certificate's key, in PEM"},
		{Key: "tls.client_ca_file", field: &c.TLS.ClientCAFile, check: optional(checkFile),
			Usage: "path of the authorities, in PEM, one of which must have signed the certificate that each client of http and kafka shows; read again when it changes; none: clients show no certificate. Without accounts, whoever has such a certificate may do everything; with them, access.grants says what"},
		{Key: "tls.client_crl_file", field: &c.TLS.ClientCRLFile, check: optional(checkFile),
			Usage: "path of the revocation lists of those authorities, in PEM, or one in DER; read again when it changes: connections with a certificate that is on it end within 5 seconds; none: certificates are good until they expire"},
		{Key: "tls.client_auth", field: &c.TLS.ClientAuth, Default: clientRequired, check: oneOf(clientRequired, clientRequested),
			Usage: "whether clients must show a certificate if tls.client_ca_file is set: required, or requested, with which those without one show a token"},
	}
}

// accessSettings are about who may do what, and the trail of it.
func (c *Config) accessSettings() []Setting {
	return []Setting{
		{Key: "access.admin_token", field: &c.Access.AdminToken, Secret: true, gateFlag: sameFlag,
			Usage: "token that may do everything, at least 20 characters, read again when the file changes; with it, the server has accounts: requests to http show a token, made with \"sluice token create\""},
		{Key: "access.admin_token_file", field: &c.Access.AdminTokenFile, check: optional(checkFile), gateFlag: sameFlag,
			Usage: "path of a file with that token, read again when it changes"},
		{Key: "access.jwt_issuer", field: &c.Access.JWT.Issuer,
			Usage: "claim iss of the JWTs that are accepted as tokens, such as https://login.example.com; none: no JWT is accepted. It needs access.admin_token, access.jwt_audience and access.jwt_keys"},
		{Key: "access.jwt_audience", field: &c.Access.JWT.Audience,
			Usage: "claim aud that JWTs must have: what the identity provider calls this service"},
		{Key: "access.jwt_keys", field: &c.Access.JWT.Keys, check: optional(checkKeys),
			Usage: "URL of the identity provider's keys (JWKS), https, or http on this machine; or the path of a file with them. Read every 5 minutes, and for a key that is unknown, at most every 10 seconds"},
		{Key: "access.jwt_name_claim", field: &c.Access.JWT.NameClaim, Default: "sub",
			Usage: "claim of JWTs with the name of somebody, who is called jwt:NAME"},
		{Key: "access.jwt_grant_claim", field: &c.Access.JWT.GrantClaim, Default: "roles",
			Usage: "claim of JWTs with the values that claim: in access.grants asks for, a list or a text with spaces between them; a dot leads into an object, as in realm_access.roles"},
		{Key: "access.cert_name_rules", field: &c.Access.CertNameRules, check: checkNameRules,
			Usage: "how the subject of a client's certificate becomes its name, cert:NAME, in the form of Kafka's ssl.principal.mapping.rules, such as RULE:^CN=([a-z0-9.-]+),OU=tills,O=Shop$/$1/L; none: the common name"},
		{Key: "access.grants", field: &c.Access.Grants, check: each(checkGrant),
			Usage: "what those may do who have no token of their own; for each of them the first that matches: name:NAME, such as name:cert:till-1, or claim:VALUE, then roles and limits, such as claim:tills producer topic=orders*; limits are tenant, type, room, topic and group; read again when the file changes"},
		{Key: "access.requests_per_second", field: &c.Access.RequestsPerSecond, Zero: "no limit", check: upTo(0, 1_000_000),
			Usage: "requests to http that each account may send in a second, to all instances together that share the accounts; further ones are answered 429 with Retry-After. Requests with the admin token of the settings, and what visitors of rooms need, are not counted"},
		{Key: "audit.file", field: &c.Audit.File, Default: auditAuto, check: orWord(Off, checkPath, `the path of a file, "auto" or "off"`), gateFlag: sameFlag,
			Usage: "path of the audit trail: refusals, and what changes something, one line of JSON each; auto: audit.log in the data directory if the server has accounts, and otherwise none; off: none"},
		{Key: "audit.max_bytes", field: &c.Audit.MaxBytes, Default: "64MiB", gateFlag: sameFlag, check: sizes(1<<20, math.MaxInt64, "at least 1MiB"),
			Usage: "size at which the file of the audit trail is renamed, and a new one begins"},
		{Key: "audit.keep", field: &c.Audit.Keep, Default: "9", gateFlag: sameFlag, check: upTo(1, 1000),
			Usage: "how many renamed files of the audit trail are kept"},
		{Key: "audit.topic", field: &c.Audit.Topic, Default: "true",
			Usage: "publish the audit trail to the topic sluice.audit too, where there are topics"},
	}
}

// serverSettings are about connections and logs.
func (c *Config) serverSettings() []Setting {
	return []Setting{
		{Key: "connections", field: &c.Connections, Zero: "half of the files that the process may open, or all but 4,096 where that is more", gateFlag: sameFlag,
			check: upTo(0, 1<<30), Usage: "most connections of clients, over HTTP, at the gate and of Kafka clients, and of the gate to its upstream, together; further ones are reset"},
		{Key: "connections_per_client", field: &c.ConnectionsPerClient, Default: "2000", gateFlag: sameFlag,
			check: upTo(1, 1<<30), Usage: "most connections of one IPv4 address or IPv6 network of 64 bits; one of 48 bits may have four times as many, and trusted proxies and this machine any number"},
		{Key: "log.level", field: &c.Log.Level, gateFlag: sameFlag,
			Usage: "least level to log: debug, info, warn or error"},
		{Key: "log.format", field: &c.Log.Format, Default: "text", check: oneOf("text", "json"), gateFlag: sameFlag,
			Usage: "format of logs: text or json"},
		{Key: "pprof", field: &c.Pprof, gateFlag: sameFlag,
			Usage: "serve profiles of the process at /debug/pprof/"},
		{Key: "disk_reserve", field: &c.DiskReserve, Default: "256MiB", gateFlag: sameFlag,
			check: sizes(1<<20, math.MaxInt64, "at least 1MiB: finishing what was accepted needs space"),
			Usage: "free disk space below which nothing new is accepted, so that accepted work can finish"},
		{Key: "memory_budget", field: &c.MemoryBudget, Zero: "GOMEMLIMIT of the environment or, without it, the memory of the machine or its container", gateFlag: sameFlag,
			check: orWord("0", sizes(256<<20, math.MaxInt64, "at least 256MiB"), ""),
			Usage: "memory that the process is meant to use: Go collects garbage so that it stays within, and long bodies of the API, chunks of jobs, requests of Kafka clients and the answers to them have an eighth each, at most 256MiB"},
	}
}

func (c *Config) tracingSettings() []Setting {
	t := &c.Tracing
	return []Setting{
		{Key: tracingEndpoint, field: &t.Endpoint, Default: Off, check: checkCollector,
			Usage: "URL of a collector that traces are sent to as OTLP over HTTP, such as http://127.0.0.1:4318; " +
				"off: none; not set: the value of OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, if any"},
		{Key: "tracing.sample_ratio", field: &t.SampleRatio, Default: "1", Zero: "only traces that callers keep", check: checkRatio,
			Usage: "share of new traces that are kept, up to 1; where a request has a traceparent, the traceparent decides"},
		{Key: "tracing.headers", field: &t.Headers, Secret: true,
			Usage: "headers of the requests to the collector, such as authorization=Bearer%20TOKEN; name=value, separated by commas, values percent-encoded"},
	}
}

func (c *Config) clusterSettings() []Setting {
	k := &c.Cluster
	return []Setting{
		{Key: "cluster.name", field: &k.Name, flag: "cluster", check: optional(checkWord),
			Usage: "name of the cluster that this process is a node of; without it: a single server"},
		{Key: "cluster.node", field: &k.Node, flag: "node", Zero: "no node of a cluster", check: upTo(1, math.MaxInt32),
			Usage: "number of this node, from 1, unique in the cluster; it stays the number of its data directory"},
		{Key: "cluster.rack", field: &k.Rack, flag: "rack", check: optional(checkWord),
			Usage: "where this node stands, such as a zone: the replicas of a partition are spread over racks"},
		{Key: "cluster.listen", field: &k.Listen, Default: "127.0.0.1:6222", check: checkAddress,
			Usage: "address for the other nodes, host:port"},
		{Key: "cluster.advertise", field: &k.Advertise, check: optional(checkHostPort),
			Usage: "host:port that the other nodes connect to; without it: cluster.listen"},
		{Key: "cluster.advertise_http", field: &k.AdvertiseHTTP, Default: advertiseAuto, check: orWord(advertiseAuto, checkHostPort, ""),
			Usage: "host:port at which operators reach the HTTP of this node, as GET /v1/cluster names it; auto: that of http, the first that others than this machine reach, with the host that Kafka clients connect to where http listens on all addresses"},
		{Key: "cluster.peers", field: &k.Peers, flag: "peers", check: each(checkHostPort),
			Usage: "host:port of the nodes of the cluster, for cluster.listen; this node may be among them"},
		{Key: "cluster.secret", field: &k.Secret, Secret: true,
			Usage: fmt.Sprintf("secret that authenticates the nodes to each other, the same on all, at least %d characters", secretLeast)},
		{Key: "cluster.secret_file", field: &k.SecretFile, check: optional(checkFile),
			Usage: "path of a file with that secret"},
		{Key: "cluster.cert_file", field: &k.CertFile, check: optional(checkFile),
			Usage: "path of this node's TLS certificate, in PEM, read again when it is renewed: for servers and clients, with the host of cluster.peers"},
		{Key: "cluster.key_file", field: &k.KeyFile, check: optional(checkFile),
			Usage: "path of the certificate's key, in PEM"},
		{Key: "cluster.ca_file", field: &k.CAFile, check: optional(checkFile),
			Usage: "path of the certificates that sign those of the other nodes, in PEM"},
		{Key: "cluster.insecure", field: &k.Insecure,
			Usage: "let nodes on different machines speak without TLS: anybody on the network between them can read and write everything"},
	}
}

func (c *Config) topicSettings() []Setting {
	t := &c.Topic
	return []Setting{
		{Key: "kafka", field: &t.Kafka, Default: "127.0.0.1:9092", check: orWord(Off, checkListeners("9092", "9093", `, or "off"`), ""),
			Usage: "address to serve Kafka clients at, host:port, with TLS if tls.cert_file is set; or several, each with a name and plain or tls: internal=plain://127.0.0.1:9092, public=tls://0.0.0.0:9093; nodes of a cluster connect to the first. off: no topics. Without accounts anybody who reaches it may read and write them, so others than this machine need access.admin_token with TLS, tls.client_ca_file or insecure_listen"},
		{Key: "topic.advertise", field: &t.Advertise, Default: advertiseAuto, check: orWord(advertiseAuto, each(checkAdvertised), ""),
			Usage: "host:port that Kafka clients are told to connect to; with names, those who came through the listener of that name: public=broker.example.com:9093; auto, and for listeners that are not named: the address that they have connected to"},
		{Key: "topic.sync", field: &t.Sync, Default: SyncAlways, check: orWord(SyncAlways, checkSync, ""),
			Usage: "always: records are fsynced before they are acknowledged; a duration, such as 1s: the interval between fsyncs, and a power cut may lose the records that were acknowledged within it"},
		{Key: "topic.linger", field: &t.Linger, Default: "0", Zero: "not at all",
			Usage: "how long an append to an idle partition waits for others to be written with it"},
		{Key: "topic.auto_create", field: &t.AutoCreate, Default: "true",
			Usage: "create topics that clients ask for and that do not exist"},
		{Key: "topic.auto_create_per_minute", field: &t.AutoCreatePerMinute,
			Usage: "most topics that are created in that way within a minute, and up to a sixth of them at once; the others when a client asks again"},
		{Key: "topic.partitions", field: &t.Partitions,
			Usage: "partitions of a topic whose creator does not say how many"},
		{Key: "topic.total_partitions", field: &t.TotalPartitions,
			Usage: "most partitions of all topics, in a cluster those of all its nodes; further ones are refused"},
		{Key: "topic.retention", field: &t.Retention, Zero: "for ever",
			Usage: "how long records are kept, by their timestamps, unless the topic has a setting of its own"},
		{Key: "topic.retention_bytes", field: &t.RetentionBytes, Zero: "no limit",
			Usage: "bytes that a partition keeps, unless the topic has a setting of its own"},
		{Key: "topic.max_message_bytes", field: &t.MaxMessageBytes,
			Usage: "most bytes of one record batch, unless the topic has a setting of its own"},
		{Key: "topic.tail_bytes", field: &t.TailBytes, Zero: "4MiB on a single server, 128MiB on a node of a cluster",
			Usage: "memory for the newest records of all partitions, for consumers that keep up"},
		{Key: "topic.replicas", field: &t.Replicas, Zero: "three, or as many as there are nodes if there are fewer", check: upTo(1, replicasMost),
			Usage: "nodes that keep each partition of a topic whose creator does not say how many; a single server keeps one"},
		{Key: "topic.leader_balance_interval", field: &t.LeaderBalanceInterval, Default: "5m", Zero: "never",
			Usage: "how often leadership of partitions returns to their preferred nodes"},
		{Key: "topic.group_session_min", field: &t.Groups.MinSession,
			Usage: "least session timeout that a member of a consumer group may ask for"},
		{Key: "topic.group_session_max", field: &t.Groups.MaxSession,
			Usage: "most session timeout that a member of a consumer group may ask for"},
		{Key: "topic.consumer_session", field: &t.Groups.ConsumerSession,
			Usage: "how long a member of a group whose partitions the server assigns may be silent"},
		{Key: "topic.consumer_heartbeat", field: &t.Groups.ConsumerHeartbeat,
			Usage: "time between the heartbeats of such a member; at most half of the session"},
		{Key: "topic.group_initial_delay", field: &t.Groups.InitialDelay, Default: "0", Zero: "not at all",
			Usage: "how long the first rebalance of an empty group waits for more members"},
		{Key: "topic.max_groups", field: &t.Groups.GroupsMax,
			Usage: "most consumer groups; further ones are refused"},
		{Key: "topic.max_group_members", field: &t.Groups.MembersMax,
			Usage: "most members of one consumer group; further ones are refused"},
		{Key: "topic.total_group_bytes", field: &t.Groups.BytesTotal,
			Usage: "most bytes that the members of all consumer groups of a node bring and are assigned, and 1 KiB for each; further ones are refused"},
		{Key: "topic.offset_retention", field: &t.Groups.OffsetRetention,
			Usage: "how long committed offsets are kept after their group became empty"},
		{Key: "topic.share_lock", field: &t.Shares.Lock,
			Usage: "how long a member of a share group has a record before others get it"},
		{Key: "topic.share_deliveries", field: &t.Shares.Deliveries,
			Usage: "how often a share group delivers a record at most"},
		{Key: "topic.share_records", field: &t.Shares.Records,
			Usage: "most records of a partition that are in flight in a share group, from the first that is not done"},
		{Key: "topic.share_earliest", field: &t.Shares.Earliest,
			Usage: "whether a share group begins at the first record of a partition, and not at its end"},
	}
}

func (c *Config) roomSettings() []Setting {
	r := &c.Room
	return []Setting{
		{Key: "state", field: &c.State, Default: string(Embedded), gateFlag: sameFlag, migrateFlag: "to",
			Usage: "where the state of rooms and of bulk is: embedded, in the data directory; or the URL of a Redis or Valkey, such as redis://host:6379, which several instances may share; or off: no rooms and no bulk actions. Others see the flags of a process: a password belongs in the file or the environment"},
		{Key: "instance", field: &c.Instance, gateFlag: sameFlag,
			Usage: "name of this instance among those that share a state: jobs that an instance of this name had in flight when it ended run again at once. Empty: the host's name and the HTTP address"},
		{Key: "room.trusted_proxies", field: &r.TrustedProxies, check: each(checkProxy), gateFlag: sameFlag,
			Usage: "addresses and networks of proxies in front of the API whose X-Forwarded-For is believed, such as 10.0.0.0/8"},
		{Key: "room.token_keys", field: &r.TokenKeys, Secret: true, gateFlag: sameFlag,
			Usage: "keys that verify the tokens in which a shop says who a visitor is, each HS256:SECRET or EdDSA:PUBLIC-KEY in base64; a list in the file, separated by commas in the environment; with them, a visitor's key needs a token"},
		{Key: "room.cors_origins", field: &r.CORSOrigins, check: each(checkOrigin), gateFlag: sameFlag,
			Usage: "origins of pages that may call the visitors' part of the API, such as https://shop.example.com; *: all"},
		{Key: "room.max_streams", field: &r.MaxStreams, Default: "20000", check: upTo(1, 1_000_000), gateFlag: sameFlag,
			Usage: "most event streams of waiting visitors that may be open; each takes a file descriptor"},
		{Key: "room.outbox", field: &r.Outbox,
			Usage: "most events of one room that may wait to be published; further ones are dropped and counted"},
		{Key: "room.refresh_interval", field: &r.RefreshInterval, gateFlag: sameFlag,
			Usage: "how often the rooms are read again, for changes that other instances made"},
		{Key: "room.expire_interval", field: &r.ExpireInterval, gateFlag: sameFlag,
			Usage: "longest time between two checks for due work in a room"},
	}
}

func (c *Config) gateSettings() []Setting {
	g, challenge := &c.Gate, &c.Gate.Challenge
	settings := []Setting{
		{Key: "gate.http", field: &g.HTTP, Default: Off, gateFlag: "listen", check: orWord(Off, checkListeners("8000", "443", `, or "off"`), ""),
			Usage: "address of a gate in front of an upstream, host:port, with TLS if gate.tls_cert is set; or several, as of http: internal=plain://127.0.0.1:8000, public=tls://0.0.0.0:443; off: none"},
		{Key: "gate.room", field: &g.Room, check: optional(room.ValidName),
			Usage: "name of the room whose passes let visitors through the gate"},
		{Key: "gate.upstream", field: &g.Upstream, check: optional(checkUpstream),
			Usage: "URL of the server behind the gate, such as http://127.0.0.1:3000"},
		{Key: "gate.upstream_host", field: &g.UpstreamHost, check: optional(checkHost),
			Usage: "host that is sent to the upstream; without it: the host of the visitor's request"},
		{Key: "gate.upstream_timeout", field: &g.UpstreamTimeout, Default: "1m",
			Usage: "how long the upstream may take to begin an answer"},
		{Key: "gate.trusted_proxies", field: &g.TrustedProxies, check: each(checkProxy),
			Usage: "addresses and networks of proxies in front of the gate whose X-Forwarded-For and X-Forwarded-Proto are believed"},
		{Key: "gate.recheck", field: &g.Recheck, Default: "2s", Zero: "each request asks the store",
			check: upToDuration(time.Minute), Usage: "how long the gate believes a pass that the store has confirmed: visits that end early end at the gate that much later"},
		{Key: "gate.template", field: &g.Template, check: optional(checkFile),
			Usage: "path of a template of the waiting page, instead of the built-in one"},
		{Key: "gate.tls_cert", field: &g.TLSCert, check: optional(checkFile),
			Usage: "path of the gate's TLS certificate, with those between it and its root, in PEM, read again when it is renewed; none: no TLS"},
		{Key: "gate.tls_key", field: &g.TLSKey, check: optional(checkFile),
			Usage: "path of the certificate's key, in PEM"},
		{Key: "gate.secure_cookies", field: &g.SecureCookies,
			Usage: "set Secure on all cookies, for a proxy in front that ends TLS and does not say so in X-Forwarded-Proto"},
		{Key: "gate.brand", field: &g.Brand, check: optional(checkBrand),
			Usage: "name that the waiting page shows, such as the shop's"},
		{Key: "gate.languages", field: &g.Languages, Default: gateLanguages.String(), check: checkLanguages,
			Usage: "languages of the waiting page, the default first: en, ko, ja, zh-Hans, and those of gate.texts"},
		{Key: "gate.texts", field: &g.Texts, check: each(checkFile),
			Usage: "paths of files with texts of the waiting page, each in one language, more or instead of the built-in ones: sluice gate words prints one"},
		{Key: "gate.theme", field: &g.Theme, check: each(checkColor),
			Usage: "colors of the waiting page, each as in accent=#2f5d62, or dark-accent=#8cc5c0 for dark pages (docs/room/page.md)"},
		{Key: "gate.logo", field: &g.Logo, check: optional(checkFile),
			Usage: "path of an image that the waiting page shows in place of the brand, of at most 32 KiB: .svg, .png, .jpg, .webp or .gif"},
		{Key: "gate.challenge_provider", field: &challenge.Provider, check: optional(oneOf("turnstile", "hcaptcha", "recaptcha", ProofOfWork)),
			Usage: "what newcomers have to pass before they may join: a test of turnstile, hcaptcha or recaptcha, which tell people from programs, or proof_of_work, which makes each browser calculate; without it: nothing"},
		{Key: "gate.challenge_site_key", field: &challenge.SiteKey,
			Usage: "the challenge's public key, from the provider"},
		{Key: "gate.challenge_secret", field: &challenge.Secret, Secret: true,
			Usage: "the challenge's secret, from the provider"},
		{Key: "gate.challenge_hostname", field: &challenge.Hostname, check: optional(checkHost),
			Usage: "host that a challenge must have been passed for; without it: any"},
		{Key: "gate.challenge_fallback", field: &challenge.Fallback, check: optional(oneOf(string(room.FailOpen), string(room.FailClosed), ProofOfWork)),
			Usage: "what newcomers get while the challenge's provider does not answer: open: they join without it; closed: a page that says so; proof_of_work; without it: on_store_failure of the room decides"},
		{Key: "gate.challenge_min_bits", field: &challenge.MinBits, Default: strconv.Itoa(engine.DefaultMinPuzzleBits), check: between(engine.MinPuzzleBits, engine.MaxPuzzleBits),
			Usage: "how hard proof_of_work is where no more visitors join than the room lets in: a browser calculates 2 to the power of it hashes"},
		{Key: "gate.challenge_max_bits", field: &challenge.MaxBits, Default: strconv.Itoa(engine.DefaultMaxPuzzleBits), check: between(engine.MinPuzzleBits, engine.MaxPuzzleBits),
			Usage: "how hard proof_of_work may become: a bit, which is twice the work, each time that twice as many visitors join"},
	}
	for i := range settings {
		if s := &settings[i]; s.gateFlag == "" {
			s.gateFlag = flagName(s.Key[len("gate."):]) // --room for gate.room
		}
	}
	return settings
}

func (c *Config) bulkSettings() []Setting {
	b := &c.Bulk
	return []Setting{
		{Key: "bulk.requests_per_second", field: &b.RequestsPerSecond, Zero: "no limit", migrateFlag: sameFlag,
			Usage: "attempts started in a second by all tenants together, until a limit is set at run time"},
		{Key: "bulk.window", field: &b.Window, migrateFlag: sameFlag,
			Usage: "length of the fixed windows that limits are counted in"},
		{Key: "bulk.ready_max", field: &b.ReadyMax,
			Usage: "most jobs in the ready queue; below it, the bound follows the workers' measured speed"},
		{Key: "bulk.dispatch_interval", field: &b.DispatchInterval,
			Usage: "how often due jobs are looked for when nothing else wakes the dispatcher"},
		{Key: "bulk.dispatch_batch", field: &b.DispatchBatch,
			Usage: "most due jobs of one look"},
		{Key: "bulk.fetch_interval", field: &b.FetchInterval,
			Usage: "how often the fair queue is looked at when nothing else wakes the fetcher"},
		{Key: "bulk.fetch_batch", field: &b.FetchBatch,
			Usage: "least jobs that one look at the fair queue asks for"},
		{Key: "bulk.alpha", field: &b.Alpha, Zero: "no boost",
			Usage: "weight of the boost for actions with little left"},
		{Key: "bulk.backoff_base", field: &b.BackoffBase,
			Usage: "delay before the second attempt of a job, doubled for each further one; the least delay of a throttled job"},
		{Key: "bulk.backoff_cap", field: &b.BackoffCap,
			Usage: "most delay before an attempt after a transient error"},
		{Key: "bulk.workers", field: &b.Workers,
			Usage: "workers of each job type that has a handler in this process"},
		{Key: "bulk.webhooks", field: &b.Webhooks,
			Usage: "webhooks in flight at a time in this process; each target has a concurrency of its own"},
		{Key: "bulk.reserve", field: &b.Reserve, Zero: "none",
			Usage: "share of the workers of a type, if they are five or more, that is kept for attempts that end within a second; 0.4 times as much when none came for a minute"},
		{Key: "bulk.job_timeout", field: &b.JobTimeout,
			Usage: "most time for one attempt"},
		{Key: "bulk.max_attempts", field: &b.MaxAttempts, migrateFlag: sameFlag,
			Usage: "most attempts of one job: the first and its retries"},
		{Key: "bulk.max_crashes", field: &b.MaxCrashes, migrateFlag: sameFlag,
			Usage: "crashes of the process that a job may be in flight at before it becomes a dead letter"},
		{Key: "bulk.lease", field: &b.Lease,
			Usage: "time a worker has before its job is given to another; workers in the process extend it"},
		{Key: "bulk.shutdown_grace", field: &b.ShutdownGrace, Zero: "at once",
			Usage: "how long stopping waits for jobs in flight before they are handed back"},
		{Key: "bulk.retention", field: &b.Retention, Zero: "for ever",
			Usage: "how long finished actions and their dead letters are kept"},
		{Key: "bulk.stream_window", field: &b.StreamWindow,
			Usage: "window of time whose jobs, enqueued one at a time, share an action; at most bulk.retention"},
		{Key: "bulk.tenant_max_actions", field: &b.TenantMaxActions, Zero: "no bound",
			Usage: "most unfinished actions of each tenant for which PUT /v1/tenants/{id} sets no max_actions"},
		{Key: "bulk.tenant_max_jobs", field: &b.TenantMaxJobs, Zero: "no bound",
			Usage: "most jobs of unfinished actions of each tenant for which no max_jobs is set"},
		{Key: "bulk.tenant_max_bytes", field: &b.TenantMaxBytes,
			Usage: "most bytes of payloads of unfinished actions of each tenant for which no max_bytes is set; 0: no bound"},
		{Key: "bulk.shards", field: &c.BulkShards, Zero: "the number that the store has or, when it is new, 16 on Redis Cluster and else 1", migrateFlag: "shards", check: upTo(0, 256),
			Usage: "shards over which tenants are spread where the state is in Redis; fixed when the store is first used"},
		{Key: "bulk.inline_targets", field: &c.Webhook.InlineTargets, Default: inlineAuto, check: oneOf(inlineAuto, "true", "false"),
			Usage: "whether actions may give the whole URL of their target; if not, they name a target whose url_prefix an operator has set, and stay below it; auto: true if http listens on loopback only"},
		{Key: "bulk.webhook_allow", field: &c.Webhook.Allow, check: each(checkNetwork),
			Usage: "networks that webhooks may reach though they are not public, such as 127.0.0.0/8: loopback, private, link-local, multicast and reserved addresses, and those of this machine, are refused otherwise"},
		{Key: "bulk.webhook_proxy", field: &c.Webhook.Proxy, Default: Off, check: oneOf(Off, proxyEnvironment),
			Usage: "off: webhooks connect to their targets; environment: through the proxies that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name, which must then refuse private addresses themselves"},
	}
}

func (c *Config) webhookSettings() []Setting {
	w := &c.Webhook
	return []Setting{
		{Key: webhookSecrets, field: &w.Secrets, Secret: true,
			Usage: "secrets that sign webhooks, the current one first, then those it replaces; a list in the file, separated by commas in the environment"},
		{Key: targetSecrets, field: &w.TargetSecrets, Secret: true, FileOnly: true,
			Usage: "for single targets, by name, the list of secrets to use instead below the target's url_prefix; an empty list: not signed"},
		{Key: "webhook.max_response_bytes", field: &w.MaxResponseBytes, Default: formatSize(webhook.DefaultResponseBytes),
			check: sizes(1, webhook.MostResponseBytes, "from 1 to "+formatSize(webhook.MostResponseBytes)),
			Usage: "most of an answer's body that is read as the job's result; a longer one is no result"},
		{Key: "webhook.idle_connections", field: &w.IdleConnections, Default: fmt.Sprint(webhook.DefaultIdleConnections), check: upTo(1, webhook.MostIdleConnections),
			Usage: "connections to one target that are kept for its next requests"},
	}
}

// typeSchema returns the settings that can be set for a single job type.
func typeSchema(t *bulk.TypeConfig) []Setting {
	return []Setting{
		{Key: "workers", field: &t.Workers, Usage: "workers of this job type"},
		{Key: "reserve", field: &t.Reserve, Zero: "none", Usage: "share of the workers that is kept for attempts that end within a second"},
		{Key: "job_timeout", field: &t.JobTimeout, Usage: "most time for one attempt"},
		{Key: "max_attempts", field: &t.MaxAttempts, Usage: "most attempts of one job: the first and its retries"},
		{Key: "backoff_base", field: &t.BackoffBase, Usage: "delay before the second attempt of a job, doubled for each further one"},
		{Key: "backoff_cap", field: &t.BackoffCap, Usage: "most delay before an attempt after a transient error"},
	}
}
