package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

// importInstance is the prefix of an import's name among the instances.
const importInstance = "import of "

// importEvents is how many events may wait until an instance sets a limit: more than any
// import has.
const importEvents = 1 << 40

// Enter makes the staged data known: settings, events, actions, schedules. From then on the
// image's store must not be opened. Enter compares each entered action with the image. When
// it returns nil, instances may open the store.
func (m *Import) Enter(ctx context.Context, image bulk.Image) error {
	if m.state == importDone {
		return nil
	}
	if err := m.goOn(ctx, importEntering); err != nil {
		return err
	}
	m.state = importEntering
	facts := image.Facts()
	for _, step := range []func() error{
		func() error { return m.enterSettings(ctx, &facts) },
		func() error { return m.tell(ctx, &facts) },
		func() error { return m.each(ctx, image, m.enterAction(image)) },
		func() error { return m.count(ctx, image) },
		func() error {
			return m.try(ctx, func(ctx context.Context) error { return m.s.reclaim(ctx, m.instance()) })
		},
		func() error { return m.enterSchedules(ctx, image) },
		func() error { return m.awaitWindow(ctx, facts.WindowEnds) },
		func() error { return m.goOn(ctx, importDone) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	m.state = importDone
	// This data is no longer needed, and does no harm if it stays.
	return m.write(ctx, []string{"UNLINK", m.s.hub + "staged"}, []string{"HDEL", m.s.hub + "instances", m.instance()})
}

func (m *Import) instance() string { return importInstance + m.options.ID }

// goOn changes the state of the import.
func (m *Import) goOn(ctx context.Context, state string) error {
	return m.try(ctx, func(ctx context.Context) error {
		answer, err := onHub(ctx, m.s, importStateScript, asInt, m.options.ID, state)
		switch {
		case err != nil:
			return err
		case answer == 2:
			others, err := m.s.ids(ctx)
			return errors.Join(&OtherActionsError{others}, err)
		case answer != 1:
			return &bulk.ImageError{Why: "another import has begun since: end that one"}
		}
		return nil
	})
}

// enterSettings writes all settings, and then the revision once.
func (m *Import) enterSettings(ctx context.Context, facts *bulk.ImageFacts) error {
	write := []string{"HSET", m.s.hub + "settings"}
	for _, change := range facts.Settings {
		name, value := settingOf(change)
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		write = append(write, name, string(text))
	}
	rates := []string{"HSET", m.s.hub + "autos"}
	for name, rate := range facts.Rates {
		text, err := json.Marshal(&rate)
		if err != nil {
			return err
		}
		rates = append(rates, name, number(rate.Window)+" "+string(text))
	}
	for _, command := range [][]string{write, rates} {
		if len(command) == 2 {
			continue
		}
		if err := m.write(ctx, command); err != nil {
			return err
		}
	}
	if len(write) == 2 {
		return nil
	}
	return m.try(ctx, func(ctx context.Context) error {
		if _, err := onHub(ctx, m.s, setScript, asInt, write[2], write[3], "1"); err != nil {
			return err
		}
		return m.s.loadSettings(ctx)
	})
}

// tell puts the events into the outboxes, before those of later changes.
func (m *Import) tell(ctx context.Context, facts *bulk.ImageFacts) error {
	if facts.KeepsEvents {
		if err := m.try(ctx, func(ctx context.Context) error { return m.s.KeepEvents(ctx, importEvents) }); err != nil {
			return err
		}
	}
	for shard := range m.s.shards {
		for told := int64(1); told > 0; {
			var err error
			if told, err = importRun(ctx, m, shard, importTellScript, asInt); err != nil {
				return err
			}
		}
	}
	return nil
}

// enterAction makes an action known.
func (m *Import) enterAction(image bulk.Image) func(context.Context, *bulk.ActionImage) error {
	return func(ctx context.Context, a *bulk.ActionImage) error {
		n, shard := m.numberOf(a)
		name, live := strconv.FormatUint(n, 10), number(int64(flag(a.Live)))
		entered, err := importRun(ctx, m, shard, importEnterScript, asInt, name, live)
		if err != nil {
			return err
		}
		if entered < 0 {
			return &bulk.ImageError{Action: a.ID, Why: "it was not staged: was its store opened since?"}
		}
		if entered == 1 {
			if err := m.compare(ctx, n, a); err != nil {
				return err
			}
		}
		if err := m.wake(ctx, image, a, shard, name); err != nil {
			return err
		}
		err = m.write(ctx, []string{"HSETNX", m.s.hub + "ids", a.ID, name}, []string{"ZADD", m.s.hub + "order", strconv.FormatUint(n/numberBase, 10), name})
		if err != nil {
			return err
		}
		var found uint64
		err = m.try(ctx, func(ctx context.Context) (err error) {
			found, err = m.s.lookup(ctx, a.ID)
			return err
		})
		if err == nil && found != n {
			err = &bulk.ImageError{Action: a.ID, Why: "another action with that id was created here in the meantime"}
		}
		return err
	}
}

// wake schedules the jobs that have a due time or a deadline.
func (m *Import) wake(ctx context.Context, image bulk.Image, a *bulk.ActionImage, shard int, name string) error {
	if !a.Live || a.InFlight+a.NonReadyTotal() == 0 {
		return nil
	}
	for jobs, err := range image.Jobs(a) {
		if err != nil {
			return err
		}
		args := []string{name}
		for _, j := range jobs {
			if j.Phase == bulk.PhaseAside || j.Phase == bulk.PhaseInFlight {
				args = append(args, number(j.Index))
			}
		}
		if len(args) == 1 {
			continue
		}
		if _, err := importRun(ctx, m, shard, importWakeScript, asInt, args...); err != nil {
			return err
		}
	}
	return nil
}

// compare compares an entered action with the image.
func (m *Import) compare(ctx context.Context, n uint64, a *bulk.ActionImage) error {
	var st *stored
	err := m.try(ctx, func(ctx context.Context) (err error) {
		st, err = m.s.read(ctx, n)
		return err
	})
	if err != nil {
		return err
	}
	got, want := st.action, a.Action
	got.Batches, want.Batches = 0, 0 // counted differently by each store
	if got.Counts != want.Counts || got.Status != want.Status || got.Paused != want.Paused || got.Open != want.Open || got.Total != want.Total || !got.Spec.Equal(want.Spec) {
		return &bulk.ImageError{Action: a.ID, Why: fmt.Sprintf("it is %s with %+v here, but %s with %+v there", got.Status, got.Counts, want.Status, want.Counts)}
	}
	return nil
}

// count checks that the store has exactly the actions of the image. An instance that had the
// store open before may have created others.
func (m *Import) count(ctx context.Context, image bulk.Image) error {
	want := int64(0)
	for _, err := range image.Actions() {
		if err != nil {
			return err
		}
		want++
	}
	return m.try(ctx, func(ctx context.Context) error {
		found, err := m.s.ids(ctx)
		if err == nil && found < want {
			err = &bulk.ImageError{Why: fmt.Sprintf("there are %d actions, which should be %d", found, want)}
		}
		return err
	})
}

// enterSchedules stores the schedules, with new revisions.
func (m *Import) enterSchedules(ctx context.Context, image bulk.Image) error {
	return m.try(ctx, func(ctx context.Context) error {
		there, err := m.s.Schedules(ctx)
		if err != nil {
			return err
		}
		revisions := map[string]int64{}
		for i := range there {
			revisions[there[i].Name] = there[i].Revision
		}
		for schedule, err := range image.Schedules() {
			if err != nil {
				return err
			}
			schedule.Revision = revisions[schedule.Name]
			if _, err := m.s.PutSchedule(ctx, schedule); err != nil {
				return fmt.Errorf("schedule %q: %w", schedule.Name, err)
			}
		}
		return nil
	})
}

// awaitWindow waits until the window of the other store's last attempt has ended: this store
// does not count its attempts.
func (m *Import) awaitWindow(ctx context.Context, ends time.Time) error {
	if left := time.Until(ends); left > 0 && left <= bulk.MaxWindow && !lifecycle.Sleep(ctx, nil, left) {
		return ctx.Err()
	}
	return nil
}
