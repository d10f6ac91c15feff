package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/rediskv"
	"github.com/sluice-project/sluice/retry"
)

// Import takes over the image of another store, in two steps. Stage writes what is
// large, where nothing leads to it: until it is done the image's store may go on, and
// what was staged is begun again. Then the image's store must not be opened any more, and
// Enter makes the actions known, one by one; it goes on where it stopped. No instance
// opens the store in between.
type Import struct {
	s       *Store
	options ImportOptions
	state   string
	offset  uint64

	actions, jobs, bytes atomic.Int64
}

// ImportOptions say what is taken over.
type ImportOptions struct {
	// ID names this import of this image: one of the same ID goes on where it stopped.
	ID string
	// From says for people where the image comes from.
	From string
	// Discard gives up what another import has staged and not entered.
	Discard bool
}

// The states of an import.
const (
	importStaging  = "staging"
	importEntering = "entering"
	importDone     = "done"
)

// OtherActionsError: the store has actions, so that it takes no image.
type OtherActionsError struct{ Actions int64 }

func (e *OtherActionsError) Error() string {
	return fmt.Sprintf("there are %d actions already, and only a store without any can take over those of another: use another database, such as redis://host:6379/1", e.Actions)
}

// UnfinishedImportError: an import has not ended.
type UnfinishedImportError struct {
	// From says where it comes from, Begun when it began.
	From, Begun string
}

func (e *UnfinishedImportError) Error() string {
	return fmt.Sprintf("the move of the store %s to here, begun at %s, has not ended: let it end, or start it again", e.From, e.Begun)
}

// CheckImport says whether an image would be taken over, and changes nothing.
func CheckImport(ctx context.Context, options Options, from ImportOptions) error {
	s, err := connect(ctx, options)
	if err != nil {
		return err
	}
	defer s.db.Close()
	had, err := do(ctx, s, func(ctx context.Context) (map[string]string, error) {
		return s.db.Do(ctx, s.db.B().Hgetall().Key(s.hub+"config").Build()).AsStrMap()
	})
	if err != nil || had["import"] == from.ID && from.ID != "" {
		return err
	}
	if state := had["import_state"]; state == importEntering || state == importStaging && !from.Discard {
		return &UnfinishedImportError{From: had["import_from"], Begun: had["import_begun"]}
	}
	others, err := do(ctx, s, func(ctx context.Context) (int64, error) {
		return s.db.Do(ctx, s.db.B().Hlen().Key(s.hub+"ids").Build()).AsInt64()
	})
	if err == nil && others > 0 {
		err = &OtherActionsError{others}
	}
	return err
}

// OpenImport opens a store, as Open does, to take over an image. It fails with
// *OtherActionsError or *UnfinishedImportError if the store cannot. Options.Instance is
// not used.
func OpenImport(ctx context.Context, options Options, from ImportOptions, image bulk.Image) (*Import, error) {
	options.Instance = ""
	s, err := connect(ctx, options)
	if err != nil {
		return nil, err
	}
	m := &Import{s: s, options: from}
	if err := m.open(ctx, options, image.Facts().Highest); err != nil {
		s.db.Close()
		return nil, err
	}
	return m, nil
}

func (m *Import) open(ctx context.Context, options Options, highest uint64) error {
	m.s.importing = true
	if err := m.s.open(ctx, options); err != nil {
		return err
	}
	answer, err := onHub(ctx, m.s, importBeginScript, asTexts, m.options.ID, m.options.From, time.Now().UTC().Format(time.RFC3339),
		strconv.FormatUint(highest, 10), strconv.Itoa(numberBase), strconv.Itoa(flag(m.options.Discard)))
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
	// What was in flight in the process of the other store is this instance's, until it
	// is returned.
	return m.s.reclaim(ctx, m.instance())
}

// Staged tells whether all is staged, so that Enter is next.
func (m *Import) Staged() bool { return m.state != importStaging }

// Done tells whether everything was taken over.
func (m *Import) Done() bool { return m.state == importDone }

// Close ends the connection.
func (m *Import) Close() error { return m.s.Close() }

// ImportProgress is how far an import is.
type ImportProgress struct {
	// Actions, Jobs and Bytes count what was staged. Bytes are those of payloads, of
	// jobs that are not done.
	Actions, Jobs, Bytes int64
}

// Progress is how far staging is. It may be called at any time.
func (m *Import) Progress() ImportProgress {
	return ImportProgress{m.actions.Load(), m.jobs.Load(), m.bytes.Load()}
}

// numberOf is the number of an action here.
func (m *Import) numberOf(a *bulk.ActionImage) (n uint64, shard int) {
	shard = m.s.shardOf(a.Tenant)
	return (m.offset+a.Number)*numberBase + uint64(shard), shard
}

// try calls f until it succeeds, as long as the server is away for a while only. What
// is tried may come again.
func (m *Import) try(ctx context.Context, f func(context.Context) error) error {
	return retry.Default.Do(ctx, func(err error) (time.Duration, bool) { return 0, errors.Is(err, bulk.ErrUnavailable) }, f)
}

// importRun runs a script of a shard.
func importRun[T any](ctx context.Context, m *Import, shard int, sc rediskv.Script, read func(rueidis.RedisResult) (T, error), args ...string) (answer T, err error) {
	err = m.try(ctx, func(ctx context.Context) (err error) {
		answer, err = onShard(ctx, m.s, sc, shard, read, args...)
		return err
	})
	return answer, err
}

// write makes commands in one exchange.
func (m *Import) write(ctx context.Context, commands ...[]string) error {
	if len(commands) == 0 {
		return nil
	}
	return m.try(ctx, func(ctx context.Context) error {
		_, err := do(ctx, m.s, func(ctx context.Context) (struct{}, error) {
			built := make(rueidis.Commands, len(commands))
			for i, c := range commands {
				built[i] = m.s.db.B().Arbitrary(c[0]).Keys(c[1]).Args(c[2:]...).Build()
			}
			for _, answer := range m.s.db.DoMulti(ctx, built...) {
				if err := answer.Error(); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		return err
	})
}
