package redisstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/rediskv"
)

//go:embed lua/*.lua
var sources embed.FS

// newScript builds a script from files of lua/.
func newScript(flags string, files ...string) rediskv.Script {
	return rediskv.NewScript(sources, flags, files...)
}

// Scripts that add data are refused when the memory is full; accepted jobs continue.
var (
	createScript = newScript("", "base", "action", "quota", "ended", "create")
	appendScript = newScript("", "base", "action", "quota", "ended", "append")

	readScript      = newScript(rediskv.ReadOnly, "base", "read")
	moveScript      = newScript(rediskv.EvenFull, "base", "action", "keys", "ended", "move")
	sweepScript     = newScript(rediskv.EvenFull, "base", "action", "sweep")
	admitScript     = newScript(rediskv.EvenFull, "base", "action", "limits", "admit")
	leaseScript     = newScript(rediskv.EvenFull, "base", "action", "keys", "limits", "lease")
	deadScript      = newScript(rediskv.ReadOnly, "base", "dead")
	jobScript       = newScript(rediskv.ReadOnly, "base", "action", "keys", "ended", "job")
	peekScript      = newScript(rediskv.ReadOnly, "base", "action", "peek")
	settleScript    = newScript(rediskv.EvenFull, "base", "action", "keys", "ended", "settle")
	dispatchScript  = newScript(rediskv.EvenFull, "base", "action", "keys", "ended", "dispatch")
	reclaimScript   = newScript(rediskv.EvenFull, "base", "action", "keys", "ended", "reclaim")
	lookScript      = newScript(rediskv.ReadOnly, "base", "look")
	eventsScript    = newScript(rediskv.EvenFull, "base", "events")
	publishedScript = newScript(rediskv.EvenFull, "base", "published")
	keepScript      = newScript(rediskv.EvenFull, "base", "keep")
	limitScript     = newScript(rediskv.EvenFull, "base", "limit")
	yieldScript     = newScript(rediskv.EvenFull, "base", "action", "limits", "yield")
	setupScript     = newScript("", "setup")

	claimScript   = newScript("", "claim")
	dropScript    = newScript(rediskv.EvenFull, "drop")
	setScript     = newScript("", "set")
	newsScript    = newScript(rediskv.ReadOnly, "news")
	pushedScript  = newScript(rediskv.EvenFull, "pushed")
	allotScript   = newScript(rediskv.EvenFull, "allot")
	yieldedScript = newScript(rediskv.EvenFull, "yielded")
	autoPutScript = newScript(rediskv.EvenFull, "auto_put")

	schedulePutScript = newScript(rediskv.EvenFull, "schedule_put")

	importBeginScript   = newScript("", "import_begin")
	importStageScript   = newScript("", "base", "import_stage")
	importUnstageScript = newScript(rediskv.EvenFull, "base", "import_unstage")
	importCountScript   = newScript(rediskv.ReadOnly, "base", "import_count")
	importStateScript   = newScript(rediskv.EvenFull, "import_state")
	importEnterScript   = newScript(rediskv.EvenFull, "base", "action", "import_enter")
	importWakeScript    = newScript(rediskv.EvenFull, "base", "action", "import_wake")
	importTellScript    = newScript(rediskv.EvenFull, "base", "import_tell")
)

// onHub runs a script on the hub.
func onHub[T any](ctx context.Context, s *Store, sc rediskv.Script, read func(rueidis.RedisResult) (T, error), args ...string) (T, error) {
	return exec(ctx, s, sc, s.hub, args, read)
}

// onShard runs a script on a shard, with the time and the window's length as first arguments. It
// fails with errSilent if the shard is silent and others are not.
func onShard[T any](ctx context.Context, s *Store, sc rediskv.Script, shard int, read func(rueidis.RedisResult) (T, error), args ...string) (none T, err error) {
	if err := s.heard(shard); err != nil {
		return none, err
	}
	return onAnyShard(ctx, s, sc, shard, read, args...)
}

// heard returns errSilent if a shard is silent and others are not.
func (s *Store) heard(shard int) error {
	if s.silent(shard) {
		return fmt.Errorf("%w: shard %d", errSilent, shard)
	}
	return nil
}

// onAnyShard is onShard for shards that may be silent.
func onAnyShard[T any](ctx context.Context, s *Store, sc rediskv.Script, shard int, read func(rueidis.RedisResult) (T, error), args ...string) (T, error) {
	return exec(ctx, s, sc, s.shards[shard], append([]string{s.clock(), s.windowMillis}, args...), read)
}

func exec[T any](ctx context.Context, s *Store, sc rediskv.Script, key string, args []string, read func(rueidis.RedisResult) (T, error)) (result T, err error) {
	lost := false
	result, err = onBase(ctx, s, baseOf(key), func(ctx context.Context) (T, error) {
		return rediskv.Exec(ctx, s.db, sc, []string{key, rediskv.Absent(key)}, args, func(r rueidis.RedisResult) (T, error) {
			if answer, ok := rueidis.IsRedisErr(r.Error()); ok {
				lost = strings.HasPrefix(answer.Error(), "NOSHARD ")
			}
			return read(r)
		})
	})
	if lost {
		err = fmt.Errorf("%w: redis has lost what it kept: %w", bulk.ErrUnavailable, errors.Join(err, s.remake(ctx)))
	}
	return result, err
}

// onBase makes an exchange about keys of the hub or of one shard.
func onBase[T any](ctx context.Context, s *Store, base string, f func(ctx context.Context) (T, error)) (result T, err error) {
	s.exchange(func() {
		ctx := s.outside(ctx)
		if err = s.checkWhole(ctx, base); err == nil {
			result, err = f(ctx)
		}
	})
	s.failed(base, err)
	return result, err
}

// remake rebuilds the store after a server has lost all data, or a shard: the store or the
// shard is empty then. The config's settings replace lost ones; a new shard gets the settings
// that remain. It does nothing while another call is running.
func (s *Store) remake(ctx context.Context) error {
	if !s.remaking.TryLock() {
		return nil
	}
	defer s.remaking.Unlock()
	s.logger.Error("redis has lost data of bulk: the lost part starts again, empty")
	if err := s.fix(ctx, len(s.shards)); err != nil {
		return err
	}
	for _, base := range s.shards {
		if err := s.setup(ctx, base); err != nil {
			return err
		}
	}
	if err := s.KeepEvents(ctx, s.most.Load()); err != nil {
		return err
	}
	if err := s.loadSettings(ctx); err != nil {
		return err
	}
	return s.set(ctx, settingRate, s.configRate())
}

// setup makes a shard unless it is there. It makes none while any other master may have it.
func (s *Store) setup(ctx context.Context, base string) (err error) {
	s.exchange(func() { err = s.db.Whole(s.outside(ctx), base, true) })
	if err == nil {
		_, err = exec(ctx, s, setupScript, base, nil, asInt)
	}
	return err
}

// do makes an exchange without a script, about any keys.
func do[T any](ctx context.Context, s *Store, f func(ctx context.Context) (T, error)) (result T, err error) {
	s.exchange(func() { result, err = rediskv.Call(s.outside(ctx), s.db, f) })
	return result, err
}

// ask makes an exchange of one command, whose first argument is a key.
func ask[T any](ctx context.Context, s *Store, command rueidis.Completed, read func(rueidis.RedisResult) (T, error)) (T, error) {
	return onBase(ctx, s, baseOf(command.Commands()[1]), func(ctx context.Context) (T, error) {
		return rediskv.Call(ctx, s.db, func(ctx context.Context) (T, error) { return read(s.db.Do(ctx, command)) })
	})
}

// send makes an exchange of several commands on keys of the hub or of one shard, and returns their first failure.
func (s *Store) send(ctx context.Context, commands rueidis.Commands) error {
	_, err := onBase(ctx, s, baseOf(commands[0].Commands()[1]), func(ctx context.Context) (any, error) {
		return rediskv.Call(ctx, s.db, func(ctx context.Context) (any, error) {
			for _, answer := range s.db.DoMulti(ctx, commands...) {
				if err := answer.Error(); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
	})
	return err
}

func asInt(r rueidis.RedisResult) (int64, error)                    { return r.AsInt64() }
func asText(r rueidis.RedisResult) (string, error)                  { return r.ToString() }
func asInts(r rueidis.RedisResult) ([]int64, error)                 { return r.AsIntSlice() }
func asTexts(r rueidis.RedisResult) ([]string, error)               { return r.AsStrSlice() }
func asMap(r rueidis.RedisResult) (map[string]string, error)        { return r.AsStrMap() }
func asArray(r rueidis.RedisResult) ([]rueidis.RedisMessage, error) { return r.ToArray() }

func number(n int64) string { return strconv.FormatInt(n, 10) }
