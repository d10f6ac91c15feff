package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var scheduleCases = []testCase{
	{"schedules come back, by name", false, schedulesKept},
	{"a schedule is put at its revision only", false, schedulesAtRevision},
	{"no revision is given twice", false, scheduleRevisionsRise},
	{"schedules survive a restart", true, schedulesSurvive},
	{"there are at most MaxSchedules", false, schedulesBounded},
	{"of puts made at once one is made", false, schedulesAtOnce},
}

// schedule returns a schedule with a value in every field.
func schedule(name string) bulk.Schedule {
	at := func(hour int) time.Time { return time.Date(2030, 1, 2, hour, 4, 5, 678_000_000, time.UTC) }
	share := 0.25
	return bulk.Schedule{
		Name: name, Cron: "*/5 4 * * 1-5", TimeZone: "Asia/Seoul",
		Spec: bulk.Spec{
			Tenant: `ü "t"/<&>`, Type: bulk.WebhookType, Target: &bulk.Target{Name: "n", URL: "http://n/"}, Class: bulk.Low,
			Aggregate: []string{"count", "sum:n"}, MaxAttempts: 3, Timeout: time.Minute, FailAbove: &share, Events: []string{bulk.JobEvents},
		},
		Jobs:    [][]byte{[]byte(`{"n":1,"big":12345678901234567890}`), {0, 0xff, '\n'}, []byte(`"<&>"`), {}},
		Overlap: bulk.OverlapAllow, CatchUp: 90 * time.Minute, Paused: true, Removing: true,
		CreatedAt: at(1), UpdatedAt: at(2), Since: at(3), NextRunAt: at(4), LastRunAt: at(5), LastAction: name + ":last",
		LastSkippedAt: at(6), LastError: "why", Pending: at(7),
	}
}

func (k *kit) put(s bulk.Schedule) bulk.Schedule {
	k.t.Helper()
	stored, err := k.store.PutSchedule(ctx, s)
	if err != nil {
		k.t.Fatalf("PutSchedule(%s at %d): %v", s.Name, s.Revision, err)
	}
	k.check(stored.Revision > s.Revision, "PutSchedule(%s): revision %d after %d, want a higher one", s.Name, stored.Revision, s.Revision)
	s.Revision = stored.Revision
	k.check(text(stored) == text(s), "PutSchedule answered %s, want %s", text(stored), text(s))
	return stored
}

// text returns a schedule as stores keep it.
func text(s bulk.Schedule) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (k *kit) expectSchedules(want ...bulk.Schedule) {
	k.t.Helper()
	got, err := k.store.Schedules(ctx)
	k.must(err)
	k.check(len(got) == len(want), "%d schedules, want %d", len(got), len(want))
	for i := range got {
		k.check(text(got[i]) == text(want[i]), "schedule %d is %s, want %s", i, text(got[i]), text(want[i]))
	}
}

func schedulesKept(k *kit) {
	k.open(unlimited())
	k.expectSchedules()
	var all []bulk.Schedule
	for _, name := range strings.Fields("z a10 a9 B x_1 a.b a-b") {
		all = append(all, k.put(schedule(name)))
	}
	slices.SortFunc(all, func(a, b bulk.Schedule) int { return strings.Compare(a.Name, b.Name) })
	k.expectSchedules(all...)

	// The caller may modify the returned schedules.
	got, err := k.store.Schedules(ctx)
	k.must(err)
	got[0].Jobs[0][0], got[0].Spec.Aggregate[0] = 'X', "changed"
	k.expectSchedules(all...)

	all[1].Paused, all[1].Jobs = false, [][]byte{[]byte("1")}
	all[1] = k.put(all[1])
	k.must(k.store.RemoveSchedule(ctx, all[3].Name))
	all = slices.Delete(all, 3, 4)
	k.expectSchedules(all...)
	k.expectActions(bulk.ActionFilter{}, "")
}

func (k *kit) expectConflict(s bulk.Schedule) {
	k.t.Helper()
	_, err := k.store.PutSchedule(ctx, s)
	k.check(errors.Is(err, bulk.ErrConflict), "PutSchedule(%s at %d): %v, want ErrConflict", s.Name, s.Revision, err)
}

func schedulesAtRevision(k *kit) {
	k.open(unlimited())
	s := schedule("a")
	s.Revision = 1
	k.expectConflict(s) // there is none
	first := k.put(schedule("a"))
	k.expectConflict(schedule("a")) // there is one
	second := k.put(first)
	k.expectConflict(first)
	ahead := second
	ahead.Revision++
	k.expectConflict(ahead)
	k.expectSchedules(second)

	k.check(errors.Is(k.store.RemoveSchedule(ctx, "b"), bulk.ErrNoSchedule), "RemoveSchedule of none: want ErrNoSchedule")
	k.must(k.store.RemoveSchedule(ctx, "a"))
	k.check(errors.Is(k.store.RemoveSchedule(ctx, "a"), bulk.ErrNoSchedule), "RemoveSchedule, again: want ErrNoSchedule")
	k.expectConflict(second)
	k.expectSchedules()
}

// scheduleRevisionsRise checks that a revision is never given twice, even if the schedule was
// removed and created again.
func scheduleRevisionsRise(k *kit) {
	k.open(unlimited())
	highest := int64(0)
	for range 3 {
		before := k.put(k.put(schedule("a")))
		k.check(before.Revision > highest, "revision %d after %d", before.Revision, highest)
		highest = before.Revision
		k.must(k.store.RemoveSchedule(ctx, "a"))
		if k.factory.Reopen != nil {
			k.reopen()
		}
		after := k.put(schedule("a"))
		k.check(after.Revision > highest, "revision %d after %d", after.Revision, highest)
		highest = after.Revision
		k.expectConflict(before)
		k.must(k.store.RemoveSchedule(ctx, "a"))
	}
}

func schedulesSurvive(k *kit) {
	for _, restart := range k.restarts() {
		k.open(unlimited())
		a, b := k.put(schedule("a")), k.put(schedule("b"))
		k.put(schedule("c"))
		k.must(k.store.RemoveSchedule(ctx, "c"))
		restart()
		k.expectSchedules(a, b)
		b = k.put(b)
		restart()
		k.expectSchedules(a, b)
	}
}

func schedulesBounded(k *kit) {
	k.open(unlimited())
	var last bulk.Schedule
	for n := range bulk.MaxSchedules {
		last = k.put(bulk.Schedule{Name: fmt.Sprint("s", n)})
	}
	full := func(name string) {
		k.t.Helper()
		_, err := k.store.PutSchedule(ctx, schedule(name))
		k.check(errors.Is(err, bulk.ErrFull), "one schedule more than MaxSchedules: %v, want ErrFull", err)
	}
	full("more")
	if k.factory.Reopen != nil {
		k.reopen()
		full("more")
	}
	k.put(last)
	k.must(k.store.RemoveSchedule(ctx, last.Name))
	k.put(schedule("more"))
	full("another")
}

func schedulesAtOnce(k *kit) {
	k.open(unlimited())
	s := k.put(schedule("a"))
	for round := range 10 {
		var mu sync.Mutex
		var puts sync.WaitGroup
		var made []bulk.Schedule
		for n := range 4 {
			puts.Go(func() {
				mine := s
				mine.LastError = fmt.Sprint(round, " ", n)
				stored, err := k.store.PutSchedule(ctx, mine)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made = append(made, stored)
				} else if !errors.Is(err, bulk.ErrConflict) {
					k.t.Errorf("PutSchedule: %v, want ErrConflict", err)
				}
			})
		}
		puts.Wait()
		k.check(len(made) == 1, "%d of 4 puts of one revision were made, want 1", len(made))
		s = made[0]
		k.expectSchedules(s)
	}
}
