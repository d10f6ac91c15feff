package group_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// checkOwners checks that no partition is read by two.
func checkOwners(t interface{ Fatalf(string, ...any) }, members []*modern) {
	owners := map[string]string{}
	for _, m := range members {
		for of, numbers := range m.reads {
			for _, number := range numbers {
				key := fmt.Sprint(of, number)
				if other, owned := owners[key]; owned {
					t.Fatalf("%s and %s read %s", other, m.Member, key)
				}
				owners[key] = m.Member
			}
		}
	}
}

// A hundred members share a thousand partitions. When others come and go, members go on reading those that
// they keep: nobody ever stops, and only as many partitions move as have to.
func TestHundredConsumersNeverStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := newBadMeta()
		groups := startConsumers(t, meta, newTopics(map[string]int32{"orders": 600, "refunds": 400}), topic.GroupsConfig{})
		var members []*modern
		for i := range 100 {
			members = append(members, newModern(t, groups, fmt.Sprintf("m%02d", i), "orders", "refunds"))
			members[i].mustBeat()
		}
		settle(t, groups, members...)
		checkOwners(t, members)
		for _, m := range members {
			if m.reads.Count() != 10 {
				t.Fatalf("%s reads %d partitions", m.Member, m.reads.Count())
			}
		}
		writes := meta.putsOf("groups/g")
		for range 10 {
			for _, m := range members {
				m.mustBeat()
			}
		}
		if after := meta.putsOf("groups/g"); after != writes {
			t.Errorf("%d heartbeats without a change wrote the group %d times", 10*len(members), after-writes)
		}

		before := map[*modern]assign.Partitions{}
		for _, m := range members {
			before[m] = m.reads
		}
		for i := range 11 { // a tenth more
			members = append(members, newModern(t, groups, fmt.Sprintf("new%02d", i), "orders", "refunds"))
		}
		moved := watchReaders(t, groups, members, before)
		if moved > 100 {
			t.Errorf("%d partitions moved to 11 new members", moved)
		}
		for _, m := range members[:10] {
			if err := m.leave(group.LeaveEpoch); err != nil {
				t.Fatal(err)
			}
		}
		members = members[10:]
		before = map[*modern]assign.Partitions{}
		for _, m := range members {
			before[m] = m.reads
		}
		if moved := watchReaders(t, groups, members, before); moved > 0 {
			t.Errorf("%d partitions moved between members when others had left", moved)
		}
	})
}

// watchReaders lets the members settle, and checks that each keeps reading what it keeps all the time. It returns how
// many partitions the members have lost.
func watchReaders(t *testing.T, groups *group.Groups, members []*modern, before map[*modern]assign.Partitions) (moved int) {
	t.Helper()
	low := map[*modern]assign.Partitions{} // what each has read all the time
	for m, reads := range before {
		low[m] = reads
	}
	for settled := false; !settled; {
		for _, m := range members {
			m.mustBeat()
			if low[m] != nil {
				low[m] = low[m].Both(m.reads)
			}
			checkOwners(t, members)
		}
		d, err := groups.Describe("g")
		if err != nil {
			t.Fatal(err)
		}
		settled = d.State == group.Stable
	}
	for m, reads := range before {
		if kept := reads.Both(m.reads); !low[m].Equal(kept) {
			t.Errorf("%s keeps %v, and has read only %v of it all the time", m.Member, kept, low[m])
		}
		moved += len(reads) - len(reads.Both(m.reads))
	}
	return moved
}

// Members come, go, are silent and lose answers; topics change; writes fail; the coordinator stops and another
// one goes on. No partition ever has two readers, and in the end each has one.
func TestModelOfConsumers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &consumerWorld{t: t, meta: newBadMeta(), topics: newTopics(map[string]int32{"orders": 5, "refunds": 2})}
			w.start()
			defer w.stop()
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				w.step(rt)
				checkOwners(rt, w.members)
			}
			w.finish(rt)
		})
	})
}

type consumerWorld struct {
	t       *testing.T
	meta    *badMeta
	topics  *someTopics
	groups  *group.Groups
	members []*modern
	made    int
}

func (w *consumerWorld) start() {
	w.groups = group.New(w.meta, topic.Single{}, topic.GroupsConfig{}, w.topics, nil)
	if err := w.groups.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, m := range w.members {
		m.groups = w.groups
	}
}

func (w *consumerWorld) stop() {
	if err := w.groups.Stop(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *consumerWorld) step(rt *rapid.T) {
	pick := func() *modern {
		if len(w.members) == 0 {
			return nil
		}
		return w.members[rapid.IntRange(0, len(w.members)-1).Draw(rt, "member")]
	}
	switch kind := rapid.IntRange(0, 20).Draw(rt, "kind"); {
	case kind == 0 && len(w.members) < 5:
		w.made++
		m := newModern(w.t, w.groups, fmt.Sprint("m", w.made), [][]string{{"orders"}, {"orders", "refunds"}, {"refunds"}}[rapid.IntRange(0, 2).Draw(rt, "topics")]...)
		m.Assignor = []string{"", "range", "uniform"}[rapid.IntRange(0, 2).Draw(rt, "assignor")]
		w.members = append(w.members, m)
	case kind == 1 && pick() != nil: // a member is killed
		at := rapid.IntRange(0, len(w.members)-1).Draw(rt, "killed")
		w.members = append(w.members[:at:at], w.members[at+1:]...)
	case kind == 2:
		w.stop()
		w.start()
	case kind == 3:
		w.meta.failNext(rapid.IntRange(1, 2).Draw(rt, "failures"), errors.New("broken"), rapid.Bool().Draw(rt, "applied"))
	case kind == 4:
		w.topics.set("refunds", rapid.Int32Range(1, 4).Draw(rt, "partitions"))
	case kind == 5:
		// As long as a member that is alive may be silent.
		time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second}).Draw(rt, "silence"))
		for _, m := range w.members {
			m.busy = false
			w.beat(m, false)
		}
	default:
		if m := pick(); m != nil {
			m.busy = rapid.IntRange(0, 2).Draw(rt, "busy") == 0
			w.beat(m, kind == 6)
		}
	}
}

// beat sends a heartbeat; the answer may be lost.
func (w *consumerWorld) beat(m *modern, lost bool) {
	copied := *m
	err := m.beat()
	if lost && err == nil && copied.Epoch != group.JoinEpoch {
		*m = copied
		m.tell = true
		return
	}
	if errors.Is(err, group.ErrUnknownMember) || errors.Is(err, group.ErrFencedEpoch) {
		m.Epoch, m.reads, m.told = group.JoinEpoch, nil, nil
	}
}

// finish lets members that were killed expire, and the others reach their targets.
func (w *consumerWorld) finish(rt *rapid.T) {
	w.meta.failNext(0, nil, false)
	for range 40 {
		time.Sleep(5 * time.Second)
		for _, m := range w.members {
			m.busy = false
			w.beat(m, false)
			checkOwners(rt, w.members)
		}
	}
	want := 0
	for _, name := range w.topics.Names() {
		for _, m := range w.members {
			if m.Topics[0] == name || len(m.Topics) > 1 {
				of, _ := w.topics.Lookup(name)
				want += int(of.Partitions)
				break
			}
		}
	}
	got := 0
	for _, m := range w.members {
		got += m.reads.Count()
	}
	if got != want {
		rt.Fatalf("in the end %d of %d partitions are read", got, want)
	}
}
