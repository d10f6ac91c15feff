package redisstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/internal/retry"
)

// Import takes over the image of another store, in two steps. Stage writes the large data
// under keys that nothing refers to. Until Stage is done, the image's store may continue to
// run; then staging starts over. After Stage, the image's store must not be opened any more.
// Enter makes the actions known, one by one, and continues where it stopped. In the meantime,
// no instance can open the store.
type Import struct {
	s       *Store
	options ImportOptions
	state   string
	offset  uint64

	actions, jobs, bytes atomic.Int64
}

// ImportOptions are the options of an import.
type ImportOptions struct {
	// ID identifies the import: an import with the same ID continues where it stopped.
	ID string
	// From describes the source of the image, for people.
	From string
	// Discard discards what another import has staged and not entered.
	Discard bool
}

// The states of an import.
const (
	importStaging  = "staging"
	importEntering = "entering"
	importDone     = "done"
)

// OtherActionsError is the error of an import into a store that has actions.
type OtherActionsError struct{ Actions int64 }

func (e *OtherActionsError) Error() string {
	return fmt.Sprintf("there are %d actions already, and only a store without any can take over those of another: use another database, such as redis://host:6379/1", e.Actions)
}

// UnfinishedImportError is the error while another import has not ended.
type UnfinishedImportError struct {
	// From is the source of the import, and Begun the time when it began.
	From, Begun string
}

func (e *UnfinishedImportError) Error() string {
	return fmt.Sprintf("the move of the store %s to here, begun at %s, has not ended: let it end, or start it again", e.From, e.Begun)
}

// CheckImport reports whether a store would accept an image. It changes nothing.
func CheckImport(ctx context.Context, options Options, from ImportOptions) error {
	s, err := connect(ctx, options)
	if err != nil {
		return err
	}
	defer s.db.Close()
	had, err := ask(ctx, s, s.db.B().Hgetall().Key(s.hub+"config").Build(), asMap)
	if err != nil || had["import"] == from.ID && from.ID != "" {
		return err
	}
	if state := had["import_state"]; state == importEntering || state == importStaging && !from.Discard {
		return &UnfinishedImportError{From: had["import_from"], Begun: had["import_begun"]}
	}
	others, err := s.ids(ctx)
	if err == nil && others > 0 {
		err = &OtherActionsError{others}
	}
	return err
}

// ids counts the actions.
func (s *Store) ids(ctx context.Context) (int64, error) {
	return ask(ctx, s, s.db.B().Hlen().Key(s.hub+"ids").Build(), asInt)
}

// OpenImport opens a store, as Open does, for an import. It fails with *OtherActionsError or
// *UnfinishedImportError if the store cannot accept the image. It ignores Options.Instance.
func OpenImport(ctx context.Context, options Options, from ImportOptions, image bulk.Image) (*Import, error) {
	options.Instance = ""
	s, err := connect(ctx, options)
	if err != nil {
		return nil, err
	}
	m := &Import{s: s, options: from}
	if err := m.open(ctx, options, image.Facts()); err != nil {
		s.db.Close()
		return nil, err
	}
	return m, nil
}

func (m *Import) open(ctx context.Context, options Options, facts bulk.ImageFacts) error {
	m.s.importing = true
	if err := m.s.open(ctx, options); err != nil {
		return err
	}
	answer, err := onHub(ctx, m.s, importBeginScript, asTexts, m.options.ID, m.options.From, time.Now().UTC().Format(time.RFC3339),
		strconv.FormatUint(facts.Highest, 10), strconv.Itoa(numberBase), strconv.Itoa(flag(m.options.Discard)))
	if err != nil {
		return err
	}
	m.state = answer[0]
	switch m.state {
	case "others":
		others, err := strconv.ParseInt(answer[1], 10, 64)
		return errors.Join(&OtherActionsError{others}, err)
	case "unfinished":
		return &UnfinishedImportError{From: answer[1], Begun: m.s.begun}
	}
	if m.offset, err = strconv.ParseUint(answer[2], 10, 64); err != nil {
		return err
	}
	if m.Done() {
		return nil
	}
	if len(facts.Secret) > 0 { // the tokens of leases stay valid
		secret := base64.StdEncoding.EncodeToString(facts.Secret)
		if err := m.write(ctx, []string{"HSET", m.s.hub + "config", "secret", secret}); err != nil {
			return err
		}
	}
	// Jobs in flight in the process of the other store belong to this instance until it
	// returns them.
	return m.s.reclaim(ctx, m.instance())
}

// Staged reports whether everything is staged, so that Enter is next.
func (m *Import) Staged() bool { return m.state != importStaging }

// Done reports whether the import has ended.
func (m *Import) Done() bool { return m.state == importDone }

// Close closes the connection.
func (m *Import) Close() error { return m.s.Close() }

// ImportProgress is the progress of an import.
type ImportProgress struct {
	// Actions, Jobs and Bytes count what was staged. Bytes counts the payloads of unfinished
	// jobs.
	Actions, Jobs, Bytes int64
}

// Progress returns the progress of staging. It may be called at any time.
func (m *Import) Progress() ImportProgress {
	return ImportProgress{m.actions.Load(), m.jobs.Load(), m.bytes.Load()}
}

// numberOf returns the number that an action has here.
func (m *Import) numberOf(a *bulk.ActionImage) (n uint64, shard int) {
	shard = m.s.shardOf(a.Tenant)
	return (m.offset+a.Number)*numberBase + uint64(shard), shard
}

// try calls f until it succeeds, while the server is unavailable for a short time. F must be
// safe to repeat.
func (m *Import) try(ctx context.Context, f func(context.Context) error) error {
	return retry.Default.Do(ctx, func(err error) (time.Duration, bool) { return 0, errors.Is(err, bulk.ErrUnavailable) }, f)
}

// importRun runs a script on a shard.
func importRun[T any](ctx context.Context, m *Import, shard int, sc rediskv.Script, read func(rueidis.RedisResult) (T, error), args ...string) (answer T, err error) {
	err = m.try(ctx, func(ctx context.Context) (err error) {
		answer, err = onShard(ctx, m.s, sc, shard, read, args...)
		return err
	})
	return answer, err
}

// write sends commands in one exchange.
func (m *Import) write(ctx context.Context, commands ...[]string) error {
	if len(commands) == 0 {
		return nil
	}
	return m.try(ctx, func(ctx context.Context) error {
		built := make(rueidis.Commands, len(commands))
		for i, c := range commands {
			built[i] = m.s.db.B().Arbitrary(c[0]).Keys(c[1]).Args(c[2:]...).Build()
		}
		return m.s.send(ctx, built)
	})
}
