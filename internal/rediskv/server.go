package rediskv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// topologyInterval is how often sentinels and clusters are asked for their masters.
const topologyInterval = 5 * time.Second

// parameters are the query parameters that a URL may have.
var parameters = []string{"addr", "db", "master_set", "client_name", "protocol", "skip_verify"}

// ParseURL reads redis://[user:password@]host[:6379][/database], rediss:// for TLS, or
// unix:///path. Further nodes of a cluster are ?addr=host:port, which may be repeated. With
// ?master_set=name the addresses are those of sentinels. Its errors never show the
// password.
func ParseURL(text string) (rueidis.ClientOption, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse has the text, and with it the password.
		return rueidis.ClientOption{}, errors.New("the URL of Redis is not a URL: redis://user:password@host:6379/0 is one")
	}
	if parsed.Scheme != "unix" && strings.Contains(parsed.EscapedPath()+parsed.RawQuery+parsed.EscapedFragment(), "@") {
		return rueidis.ClientOption{}, errors.New("the URL of Redis has an @ after its host: in a user or password, write / as %2F, ? as %3F, # as %23 and @ as %40")
	}
	for name := range parsed.Query() {
		if !slices.Contains(parameters, name) {
			return rueidis.ClientOption{}, fmt.Errorf("the URL of Redis has the parameter %q: there are %s", name, strings.Join(parameters, ", "))
		}
	}
	options, err := rueidis.ParseURL(text)
	if err != nil {
		return options, fmt.Errorf("the URL of Redis: %w", err)
	}
	options.Dialer.Timeout = DefaultCallTimeout
	options.ConnWriteTimeout = DefaultCallTimeout
	options.DisableCache = true // nothing is cached here, so the server need not track keys
	options.Sentinel.TopologyRefreshInterval = topologyInterval
	options.ClusterOption.ShardsRefreshInterval = topologyInterval
	if options.Sentinel.MasterSet != "" {
		// Sentinels are asked as the server is: they have the same users and TLS.
		options.Sentinel.Username, options.Sentinel.Password = options.Username, options.Password
		options.Sentinel.TLSConfig, options.Sentinel.Dialer = options.TLSConfig, options.Dialer
	}
	if options.ClientName == "" {
		options.ClientName = "sluice"
	}
	return options, nil
}

// check refuses servers that cannot keep state, and warns of servers that may lose it.
func (db *DB) check(ctx context.Context) error {
	for address, node := range db.Nodes() {
		info, err := Call(ctx, db, func(ctx context.Context) (string, error) {
			return node.Do(ctx, node.B().Info().Section("server", "memory", "persistence", "replication").Build()).ToString()
		})
		if err != nil {
			return fmt.Errorf("redis at %s: %w", address, err)
		}
		if err := db.checkNode(address, parseInfo(info)); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) checkNode(address string, info map[string]string) error {
	version := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("redis at %s has version %q: Redis 7, or Valkey, is needed", address, version)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return fmt.Errorf("redis at %s has maxmemory-policy %q: it would evict visitors and jobs that wait: "+
			"set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in its configuration file)", address, policy)
	}
	if info["role"] == "master" && info["aof_enabled"] != "1" {
		db.logger.Warn("this Redis has no append-only file: when it stops, all changes since its last snapshot are lost; set appendonly yes",
			slog.String("address", address))
	}
	return nil
}

// parseInfo reads the answer of INFO: lines of name:value, and headings.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info
}
