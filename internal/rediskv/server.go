package rediskv

import (
	"context"
	"errors"
	"fmt"
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

// Examine returns what an operator should change at the servers, as far as they answer: what they may lose, and what keeps them from
// taking writes. Nil: nothing.
func (db *DB) Examine(ctx context.Context) (found error) {
	_ = db.eachInfo(ctx, func(address string, info map[string]string) error {
		found = errors.Join(found, refuse(address, info), doubt(address, info))
		return nil
	})
	return found
}

// check refuses servers that cannot keep state, and warns of those that an operator should look at.
func (db *DB) check(ctx context.Context) error {
	return db.eachInfo(ctx, func(address string, info map[string]string) error {
		if err := refuse(address, info); err != nil {
			return err
		}
		if err := doubt(address, info); err != nil {
			db.logger.Warn(err.Error())
		}
		return nil
	})
}

// eachInfo calls f with what each node says of itself.
func (db *DB) eachInfo(ctx context.Context, f func(address string, info map[string]string) error) error {
	for address, node := range db.Nodes() {
		info, err := Call(ctx, db, func(ctx context.Context) (string, error) {
			return node.Do(ctx, node.B().Info().Section("server", "memory", "persistence", "replication").Build()).ToString()
		})
		if err != nil {
			return fmt.Errorf("redis at %s: %w", address, err)
		}
		if err := f(address, parseInfo(info)); err != nil {
			return err
		}
	}
	return nil
}

// refuse returns why a server cannot keep state; nil if it can.
func refuse(address string, info map[string]string) error {
	version := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("redis at %s has version %q: Redis 7, or Valkey, is needed", address, version)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return fmt.Errorf("redis at %s has maxmemory-policy %q: it would evict visitors and jobs that wait: "+
			"set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in its configuration file)", address, policy)
	}
	return nil
}

// doubt returns what a server may lose, or will soon not take; nil if it is as it should be.
func doubt(address string, info map[string]string) (found error) {
	add := func(why string) { found = errors.Join(found, fmt.Errorf("redis at %s %s", address, why)) }
	if info["role"] == "master" && info["aof_enabled"] != "1" {
		add("has no append-only file: when it stops, all changes since its last snapshot are lost; set appendonly yes")
	}
	if status := info["aof_last_write_status"]; status != "" && status != "ok" {
		add("could not write its append-only file: its disk is full or fails, and it refuses writes")
	}
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	if most, _ := strconv.ParseInt(info["maxmemory"], 10, 64); most > 0 && used > most/10*9 {
		add(fmt.Sprintf("uses %d of %d bytes of its maxmemory: beyond it writes are refused; raise it, or remove what is not needed", used, most))
	}
	return found
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
