package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// loadSettings brings this instance's copy of the settings up to date, and sends the shards that
// answer what they lack, if the instance that set something has not done so.
func (s *Store) loadSettings(ctx context.Context) error {
	return othersGoOn(s.spreadSettings(ctx))
}

// spreadSettings is loadSettings, but fails with errSilent if a silent shard lacks settings.
func (s *Store) spreadSettings(ctx context.Context) error {
	load := s.settings.begin()
	values, revision := s.settings.get()
	n, err := onHub(ctx, s, newsScript, readNews, number(revision))
	if err != nil {
		return err
	}
	if n.all {
		values = settings{shortest: s.config.Window}
	}
	if values, err = values.with(n.values, s.config.Window); err != nil {
		return err
	}
	// Revision 0 is that of a hub that has lost everything. The config's limit holds all the same: whoever makes the settings agree sets
	// the one that is known here. Until then shards start nothing, as they are sent no settings.
	empty := n.revision == 0
	if empty {
		values.rate = s.configRate()
	}
	s.settings.put(load, values, n.revision, n.revision*int64(flag(n.pushed)))
	s.settings.changed(n.values)
	if n.pushed || empty {
		return nil
	}
	return s.push(ctx, &values, n.revision, n.pending)
}

// news is the answer of lua/news.lua.
type news struct {
	revision    int64
	pushed, all bool
	values      map[string]string
	pending     pending
}

// pending are the settings that have changed since the last revision that all shards knew. A shard
// with one of the revisions from then on lacks no others; without revisions, it may lack any.
type pending struct{ revisions, names []string }

func readNews(r rueidis.RedisResult) (n news, err error) {
	parts, err := r.ToArray()
	if err != nil {
		return n, err
	}
	if len(parts) != 6 {
		return n, fmt.Errorf("redis: the script news answers %d parts", len(parts))
	}
	var errs [6]error
	var pushed, all int64
	n.revision, errs[0] = parts[0].AsInt64()
	pushed, errs[1] = parts[1].AsInt64()
	all, errs[2] = parts[2].AsInt64()
	n.values, errs[3] = parts[3].AsStrMap()
	n.pending.revisions, errs[4] = parts[4].AsStrSlice()
	n.pending.names, errs[5] = parts[5].AsStrSlice()
	n.pushed, n.all = pushed == 1, all == 1
	slices.Sort(n.pending.names)
	n.pending.names = slices.Compact(n.pending.names)
	return n, errors.Join(errs[:]...)
}

// push sends every shard what it lacks, and then records in the hub what the shards have started
// in the windows of the limits that have changed. Several instances may do so at once. With a
// silent shard the hub is told nothing, and so gives no parts of limits until the shard is back.
func (s *Store) push(ctx context.Context, values *settings, revision int64, p pending) error {
	started := []string{number(revision), number(s.kept())}
	var silent error
	for shard := range s.shards {
		answer, err := s.pushTo(ctx, shard, values, revision, p)
		if errors.Is(err, errSilent) {
			silent = err
			continue
		}
		if err != nil {
			return err
		}
		for limit := range slices.Chunk(answer, 5) {
			started = append(started, number(int64(shard)))
			for _, m := range limit {
				text, err := textOf(m)
				if err != nil {
					return err
				}
				started = append(started, text)
			}
		}
	}
	if silent != nil {
		return silent
	}
	_, err := onHub(ctx, s, pushedScript, asInt, started...)
	return err
}

// pushTo sends a shard the pending settings or, if it may lack others, all of them.
func (s *Store) pushTo(ctx context.Context, shard int, values *settings, revision int64, p pending) (started []rueidis.RedisMessage, err error) {
	if len(p.revisions) > 0 {
		answer, err := onShard(ctx, s, limitScript, shard, asArray, s.changeArgs(values, revision, shard, p)...)
		if err != nil || len(answer) > 0 {
			return answer[min(1, len(answer)):], err
		}
	}
	answer, err := onShard(ctx, s, limitScript, shard, asArray, s.limitArgs(values, revision, shard)...)
	return answer[min(1, len(answer)):], err
}

// textOf returns a text or a number of a script as text.
func textOf(m rueidis.RedisMessage) (string, error) {
	if m.IsInt64() {
		n, err := m.AsInt64()
		return number(n), err
	}
	return m.ToString()
}

// kept returns how long the hub keeps the parts of a window, in milliseconds.
func (s *Store) kept() int64 { return 2*s.config.Window.Milliseconds() + 60_000 }

// limitArgs returns all settings for a shard: the global limit, those of targets, and those of its
// tenants.
func (s *Store) limitArgs(values *settings, revision int64, shard int) []string {
	args := []string{number(revision), ""}
	limited := func(name string) {
		if text := s.limitText(values, name); text != "" {
			args = append(args, "l", name, text)
		}
	}
	limited("all")
	for name, t := range values.tenants.all() {
		if s.shardOf(name) == shard {
			limited("t:" + name)
			args = append(args, "w", name, fmt.Sprint(t.Weight))
			if len(t.Keys) > 0 {
				args = append(args, "k", "k:"+name, s.keysText(&t))
			}
			if text := quotaText(&t); text != "" {
				args = append(args, "s", "s:"+name, text)
			}
		}
	}
	for _, name := range values.limitedTargets() {
		limited("g:" + name)
	}
	return args
}

// changeArgs returns the pending settings for a shard: all but those of other shards' tenants.
func (s *Store) changeArgs(values *settings, revision int64, shard int, p pending) []string {
	args := []string{number(revision), " " + strings.Join(p.revisions, " ") + " "}
	for _, setting := range p.names {
		tenant, is := strings.CutPrefix(setting, settingTenant)
		if is && s.shardOf(tenant) != shard {
			continue
		}
		name := limitedBy(setting)
		args = append(args, "l", name, s.limitText(values, name))
		if t, set := values.tenants.get(tenant); is && set {
			args = append(args, "w", tenant, fmt.Sprint(t.Weight), "k", "k:"+tenant, s.keysText(&t), "s", "s:"+tenant, quotaText(&t))
		}
	}
	return args
}

// maxPerWindow is above any rate by key, and exact in a script.
const maxPerWindow = 1 << 52

// keysText returns the limits by key of a tenant as shards keep them; "" if there are none.
func (s *Store) keysText(t *bulk.Tenant) string {
	if len(t.Keys) == 0 {
		return ""
	}
	limits := map[string][3]int64{}
	for expression, of := range t.Keys {
		l := of.Limit()
		limits[expression] = [3]int64{min(l.PerWindow(s.config.Window), maxPerWindow), int64(l.Concurrency), l.Window(s.config.Window).Milliseconds()}
	}
	text, _ := json.Marshal(limits) // all can be encoded
	return string(text)
}

// quotaText returns the quotas of a tenant, without those of the config, as shards keep them; "" if there
// are none.
func quotaText(t *bulk.Tenant) string {
	if q := (bulk.Config{}).QuotaOf(t); q != (bulk.Stored{}) {
		return storedText(q)
	}
	return ""
}

func storedText(q bulk.Stored) string { return fmt.Sprint(q.Actions, " ", q.Jobs, " ", q.Bytes) }

// defaultQuota returns the quotas of the config for a script.
func (s *Store) defaultQuota() string { return storedText(s.config.QuotaOf(&bulk.Tenant{})) }

// limitText returns a limit as shards keep it; "" if nothing is limited.
func (s *Store) limitText(values *settings, name string) string {
	l := values.limitOf(name)
	if l.RequestsPerSecond <= 0 && l.Concurrency <= 0 {
		return ""
	}
	text := fmt.Sprintf("%d %d", flag(l.RequestsPerSecond > 0), l.Concurrency)
	if window := l.Window(s.config.Window); window != s.config.Window { // earlier versions do not know it
		text += " " + number(window.Milliseconds())
	}
	return text
}
