package redisstore

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Against damage, not against anybody; scripts have no other.
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// importActions is how many actions are staged, or entered, concurrently.
	importActions = 4
	// importBytes and importValues are about the maximum of one exchange; a longer value has
	// an exchange of its own.
	importBytes  = 1 << 20
	importValues = 1000
	// countPages is the number of pages of jobs counted in one exchange.
	countPages = 500
)

// Stage copies all large data, after deleting what was staged before. It compares the stored
// data with the image: payloads by a checksum, all else by counts. If they differ, or some
// data cannot be imported, it returns an *ImageError.
func (m *Import) Stage(ctx context.Context, image bulk.Image) error {
	if err := m.unstage(ctx); err != nil {
		return err
	}
	if err := m.stageEvents(ctx, image); err != nil {
		return err
	}
	return m.each(ctx, image, func(ctx context.Context, a *bulk.ActionImage) error {
		if a.Live && a.Received > MaxJobs {
			return &bulk.ImageError{Action: a.ID, Why: fmt.Sprintf("it has %d jobs, and here an action has at most %d: let it finish, or cancel it", a.Received, MaxJobs)}
		}
		t := &staging{m: m, image: image, a: a}
		t.n, t.shard = m.numberOf(a)
		t.name = strconv.FormatUint(t.n, 10)
		return t.stage(ctx)
	})
}

// each calls f for the actions of an image, some concurrently.
func (m *Import) each(ctx context.Context, image bulk.Image, f func(context.Context, *bulk.ActionImage) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(importActions)
	for a, err := range image.Actions() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			group.Go(func() error { return err })
			break
		}
		group.Go(func() error { return f(ctx, &a) })
	}
	return group.Wait()
}

// unstage deletes the data staged by this import, or by a discarded one.
func (m *Import) unstage(ctx context.Context) error {
	for shard := range m.s.shards {
		if err := m.write(ctx, []string{"UNLINK", m.s.shards[shard] + "import"}); err != nil {
			return err
		}
	}
	key := m.s.hub + "staged"
	for {
		numbers, err := ask(ctx, m.s, m.s.db.B().Zrange().Key(key).Min("0").Max("499").Build(), asTexts)
		if err != nil || len(numbers) == 0 {
			return err
		}
		for _, text := range numbers {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return err
			}
			if shard := m.s.shardOfNumber(n); shard >= 0 {
				if _, err := importRun(ctx, m, shard, importUnstageScript, asInt, text); err != nil {
					return err
				}
			}
		}
		if err := m.write(ctx, append([]string{"ZREM", key}, numbers...)); err != nil {
			return err
		}
	}
}

// list is a list that is staged in chunks.
type list struct {
	m      *Import
	shard  int
	name   string
	have   int64
	values []string
	bytes  int
}

func (l *list) add(ctx context.Context, value string) error {
	if len(l.values) == importValues || len(l.values) > 0 && l.bytes+len(value) > importBytes {
		if err := l.flush(ctx); err != nil {
			return err
		}
	}
	l.values, l.bytes = append(l.values, value), l.bytes+len(value)
	return nil
}

// flush stores the values, and compares the stored list.
func (l *list) flush(ctx context.Context) error {
	if len(l.values) == 0 {
		return nil
	}
	hash, length := sha1.New(), []byte(nil) //nolint:gosec // as above
	for _, value := range l.values {
		length = append(strconv.AppendInt(length[:0], int64(len(value)), 10), ':')
		hash.Write(length)
		hash.Write([]byte(value))
	}
	args := append([]string{l.name, number(l.have)}, l.values...)
	stored, err := importRun(ctx, l.m, l.shard, importStageScript, func(r rueidis.RedisResult) (string, error) { return r.ToString() }, args...)
	if err != nil {
		return err
	}
	if stored != hex.EncodeToString(hash.Sum(nil)) {
		return &bulk.ImageError{Why: fmt.Sprintf("%d values of %s are not stored as they were sent", len(l.values), l.name)}
	}
	l.have += int64(len(l.values))
	clear(l.values)
	l.values, l.bytes = l.values[:0], 0
	return nil
}

// eventOfImport replaces the type of an event that another store has recorded.
const eventOfImport = "event"

// importedEvent is an event that another store has recorded. It keeps its ID.
type importedEvent bulk.Event

// stageEvents copies the waiting events, each to the shard of its tenant.
func (m *Import) stageEvents(ctx context.Context, image bulk.Image) error {
	lists := make([]list, len(m.s.shards))
	for shard := range lists {
		lists[shard] = list{m: m, shard: shard, name: "import"}
	}
	for events, err := range image.Events() {
		if err != nil {
			return err
		}
		for _, event := range events {
			var text bytes.Buffer
			encoder := json.NewEncoder(&text)
			encoder.SetEscapeHTML(false) // Data stays as it is
			if err := encoder.Encode(importedEvent(event)); err != nil {
				return err
			}
			entry := fmt.Sprintf("%d %s %s", event.Time.UnixMilli(), eventOfImport, bytes.TrimSuffix(text.Bytes(), []byte("\n")))
			if err := lists[m.s.shardOf(event.Tenant)].add(ctx, entry); err != nil {
				return err
			}
		}
	}
	for shard := range lists {
		if err := lists[shard].flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// decodeImported decodes an event that stageEvents has written.
func decodeImported(text string) (bulk.Event, error) {
	var event importedEvent
	err := json.Unmarshal([]byte(text), &event)
	event.Time = event.Time.UTC()
	return bulk.Event(event), err
}

// staging is an action that is being staged.
type staging struct {
	m     *Import
	image bulk.Image
	a     *bulk.ActionImage
	n     uint64
	name  string // the number
	shard int

	front    front
	bookings map[int64]int64 // the slots of throttled jobs, by window
	// These count what was staged.
	payloads, bytes, succeeded, failed, canceled, inFlight, states, outcomes, results int64
	// largest is the size of the largest payload.
	largest int64
	aside   [4]int64
}

func (t *staging) key(kind string) string { return t.m.s.shards[t.shard] + kind + ":" + t.name }

func (t *staging) stage(ctx context.Context) error {
	sequence := strconv.FormatUint(t.n/numberBase, 10)
	if err := t.m.write(ctx, []string{"ZADD", t.m.s.hub + "staged", sequence, t.name}); err != nil {
		return err
	}
	if err := t.put(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{t.stageJobs, t.stageOutcomes, t.stageDead, t.stageResults, t.check, t.put} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	t.m.actions.Add(1)
	return nil
}

// put writes the action as far as it is known, so that its staged data can be found.
func (t *staging) put(ctx context.Context) error {
	record, err := json.Marshal(t.record())
	if err != nil {
		return err
	}
	spec, err := json.Marshal(&t.a.Spec)
	if err != nil {
		return err
	}
	commands := [][]string{{"SET", t.key("i"), string(record)}, {"SET", t.key("x"), string(spec)}}
	if t.a.Live && len(t.a.Partial) > 0 {
		commands = append(commands, []string{"SET", t.key("z"), rueidis.BinaryString(t.a.Partial)})
	}
	if t.a.Result != nil {
		result, err := json.Marshal(t.a.Result)
		if err != nil {
			return err
		}
		commands = append(commands, []string{"SET", t.key("v"), string(result)})
	}
	if len(t.bookings) > 0 {
		bookings, err := json.Marshal(t.bookings)
		if err != nil {
			return err
		}
		commands = append(commands, []string{"SET", t.key("k"), string(bookings)})
	}
	return t.m.write(ctx, commands...)
}

// record returns the action as this store keeps it.
func (t *staging) record() *record {
	a := t.a
	r := t.m.s.newRecord(&a.Spec)
	r.Status, r.Paused, r.Open, r.Error, r.Replays = a.Status, flag(a.Paused), flag(a.Open), a.Error, a.Replays
	r.Created, r.Entered, r.Finished = millis(a.CreatedAt), millis(a.EnteredAt), millis(a.FinishedAt)
	r.Total, r.Received = a.Total, a.Received
	r.Succeeded, r.Failed, r.Canceled, r.Throttled, r.Retried = a.Succeeded, a.Failed, a.Counts.Canceled, a.Throttled, a.Retried
	r.Next, r.Back = a.Received, 0
	r.Outcomes, r.Reduced = int64(a.Batches), int64(a.Reduced)
	if a.Live {
		r.Next, r.Back, r.Flight = a.Next, t.front.jobs, a.InFlight
		r.Limited, r.Throttling, r.Failing = a.NonReady[bulk.RateLimited], a.NonReady[bulk.APIThrottled], a.NonReady[bulk.TransientError]
		// Reduced outcomes count one for each job here.
		r.Outcomes = int64(r.Aggregates) * (a.Succeeded + a.Failed)
		r.Reduced = r.Outcomes - t.outcomes
		if t.payloads > 0 { // the sizes of deleted payloads are not known
			r.Bytes, r.Largest = t.bytes*a.Received/t.payloads, t.largest
		}
	}
	r.Trimmed = r.Reduced
	return r
}

// check compares the staged data with the data sent, and that with the action's counts.
func (t *staging) check(ctx context.Context) error {
	a := t.a
	wrong := func(what string, got, want int64) error {
		if got == want {
			return nil
		}
		return &bulk.ImageError{Action: a.ID, Why: fmt.Sprintf("it has %d %s, which should be %d", got, what, want)}
	}
	sums := make([]int64, 9)
	for first := int64(0); first == 0 || first*bulk.ImagePage < a.Received; first += countPages {
		last := min(first+countPages, (a.Received+bulk.ImagePage-1)/bulk.ImagePage)
		counted, err := importRun(ctx, t.m, t.shard, importCountScript, asInts, t.name, number(first), number(last))
		if err != nil {
			return err
		}
		for i := range sums {
			if i < 3 {
				sums[i] += counted[i]
			} else {
				sums[i] = counted[i]
			}
		}
	}
	for i, c := range []struct {
		what string
		want int64
	}{
		{"payloads", t.payloads}, {"succeeded jobs", a.Succeeded}, {"jobs that ended otherwise", a.Failed + t.canceled}, {"states of jobs", t.states},
		{"outcomes", t.outcomes}, {"dead letters", a.Dead}, {"dead letters in order", a.Dead}, {"runs in front", t.front.list.have},
		{"results", t.results},
	} {
		if err := wrong(c.what, sums[i], c.want); err != nil {
			return err
		}
	}
	if !a.Live {
		return nil
	}
	return wrong("jobs that wait in front", t.front.jobs, max(0, a.Pending-(a.Received-a.Next)))
}
