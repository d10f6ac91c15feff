package group_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// reader is a client of either protocol.
type reader interface {
	// owns returns the client's name, and what it reads now.
	owns() (name string, reads assign.Partitions)
	// turn lets the client do what it can without waiting. A busy one goes on with what it reads; answers may be lost.
	turn(busy, lost bool)
	moveTo(groups *group.Groups)
	quit()
	subscribed() []string
}

// sharedPartition returns an error if two members read the same partition.
func sharedPartition[M reader](members []M) error {
	owners := map[string]string{}
	for _, m := range members {
		name, reads := m.owns()
		for of, numbers := range reads {
			for _, number := range numbers {
				key := fmt.Sprint(of, number)
				if other, owned := owners[key]; owned {
					return fmt.Errorf("%s and %s read %s", other, name, key)
				}
				owners[key] = name
			}
		}
	}
	return nil
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
		if err := sharedPartition(members); err != nil {
			t.Fatal(err)
		}
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
		writes = meta.putsOf("groups/g")
		moved := watchReaders(t, groups, members, before)
		t.Logf("11 more members: %d partitions moved, the group was written %d times", moved, meta.putsOf("groups/g")-writes)
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
			if err := sharedPartition(members); err != nil {
				t.Fatal(err)
			}
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
		moved += reads.Count() - reads.Both(m.reads).Count()
	}
	return moved
}

// Members come, go, are silent, are slow to revoke and lose answers; topics change; writes fail; the coordinator stops
// and another one goes on. No partition ever has two readers, and in the end each has one.
func TestModelOfConsumers(t *testing.T) { testConsumers(t, 21, 0, false) }

// The same with members of both protocols, so that the group is converted again and again, also during rebalances.
func TestModelOfMixedGroups(t *testing.T) {
	t.Run("cooperative", func(t *testing.T) { testConsumers(t, 14, 2, false) })
	t.Run("eager", func(t *testing.T) { testConsumers(t, 14, 2, true) })
}

// testConsumers runs the model: most is the largest kind of step, and one in so many members is a classic one.
func testConsumers(t *testing.T, most, classic int, eager bool) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) consumerStep {
		return consumerStep{
			kind: rapid.IntRange(0, most).Draw(t, "kind"), who: rapid.IntRange(0, 4).Draw(t, "who"), value: rapid.IntRange(0, 5).Draw(t, "value"),
		}
	}), 1, longer(80, 300))
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		all := steps.Draw(t, "steps")
		var wrong error
		synctest.Test(outer, func(t *testing.T) {
			w := &consumerWorld{t: t, meta: newBadMeta(), topics: newTopics(map[string]int32{"orders": 5, "refunds": 2}), classic: classic, eager: eager}
			wrong = w.run(all)
		})
		if wrong != nil {
			t.Fatal(wrong)
		}
	})
}

// consumerStep is a step of the model: kinds above 7 are heartbeats.
type consumerStep struct{ kind, who, value int }

type consumerWorld struct {
	t       *testing.T
	meta    *badMeta
	topics  *someTopics
	groups  *group.Groups
	members []reader
	made    int
	classic int
	eager   bool
}

func (w *consumerWorld) run(steps []consumerStep) error {
	w.start()
	defer w.stop()
	for i, s := range steps {
		w.step(s)
		if err := sharedPartition(w.members); err != nil {
			return fmt.Errorf("after step %d: %w", i, err)
		}
	}
	return w.finish()
}

func (w *consumerWorld) start() {
	w.groups = group.New(w.meta, topic.Single{}, topic.GroupsConfig{}, w.topics, nil)
	if err := w.groups.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, m := range w.members {
		m.moveTo(w.groups)
	}
}

func (w *consumerWorld) stop() {
	if err := w.groups.Stop(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *consumerWorld) step(s consumerStep) {
	switch s.kind {
	case 0:
		w.join(s)
	case 1: // a member is killed
		if at := s.who; at < len(w.members) {
			w.members = append(w.members[:at:at], w.members[at+1:]...)
		}
	case 2:
		w.stop()
		w.start()
	case 3:
		w.meta.failNext(1+s.value%2, errors.New("broken"), s.who%2 == 0)
	case 4:
		w.topics.set("refunds", int32(1+s.value))
	case 5: // as long as a member that is alive may be silent
		time.Sleep([]time.Duration{time.Second, 20 * time.Second}[s.value%2])
		w.beatAll()
	case 7: // a member leaves
		if at := s.who; at < len(w.members) {
			w.members[at].quit()
			w.members = append(w.members[:at:at], w.members[at+1:]...)
		}
	default:
		if s.who < len(w.members) {
			w.members[s.who].turn(s.value < 2, s.kind == 6)
		}
	}
	synctest.Wait()
}

func (w *consumerWorld) join(s consumerStep) {
	if len(w.members) == 5 {
		return
	}
	w.made++
	name, topics := fmt.Sprint("m", w.made), [][]string{{"orders"}, {"orders", "refunds"}, {"refunds"}}[s.who%3]
	if w.classic > 0 && w.made%w.classic == 0 {
		w.members = append(w.members, newVeteran(w.t, w.groups, w.topics, name, w.eager, topics...))
		return
	}
	m := newModern(w.t, w.groups, name, topics...)
	m.Assignor = []string{"", "range", "uniform"}[s.value%3]
	w.members = append(w.members, m)
}

func (w *consumerWorld) beatAll() {
	for _, m := range w.members {
		m.turn(false, false)
		synctest.Wait()
	}
}

// finish lets members that were killed expire, and the others reach their targets.
func (w *consumerWorld) finish() error {
	w.meta.failNext(0, nil, false)
	for range 80 {
		time.Sleep(5 * time.Second)
		w.beatAll()
		if err := sharedPartition(w.members); err != nil {
			return err
		}
	}
	want, got := 0, 0
	for _, name := range w.topics.Names() {
		if of, _ := w.topics.Lookup(name); slices.ContainsFunc(w.members, func(m reader) bool { return slices.Contains(m.subscribed(), name) }) {
			want += int(of.Partitions)
		}
	}
	for _, m := range w.members {
		_, reads := m.owns()
		got += reads.Count()
	}
	if got != want {
		return fmt.Errorf("in the end %d of %d partitions are read", got, want)
	}
	return nil
}
