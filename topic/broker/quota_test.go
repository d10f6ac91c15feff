package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// quotas are those of owners, by name. Others have none.
type quotas map[string]topic.Quota

func (q quotas) of(owner string) topic.Quota { return q[owner] }

// An owner may have as many topics and partitions as the quota says, however they are made, and whoever adds them. Views are topics.
// Topics that are deleted make room. Topics of others, and of nobody, do not count.
func TestOwnersHaveQuotas(t *testing.T) {
	store := storetest.NewMemory()
	allowed := quotas{"ada": {Topics: 3, Partitions: 5}}
	b := startBroker(t, store, topic.Config{Partitions: 1}, broker.WithQuotas(allowed.of))
	create := func(name, owner string, partitions int32, dryRun bool) error {
		_, err := b.Create(t.Context(), topic.Spec{Name: name, Owner: owner, Partitions: partitions}, dryRun)
		return err
	}
	exceeds := func(doing string, err error, says string) {
		t.Helper()
		if !errors.Is(err, topic.ErrQuota) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want ErrQuota that says %q", doing, err, says)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(create("bobs", "bob", 9, false))
	must(create("nobodys", "", 9, false))
	must(create("a", "ada", 3, false))
	for _, dryRun := range []bool{true, false} {
		exceeds("a topic with too many partitions", create("b", "ada", 3, dryRun), "ada has 3 partitions, and 3 more would exceed max_partitions, 5")
		exceeds("too many partitions more", b.AddPartitions(t.Context(), "a", 6, dryRun), "max_partitions, 5")
	}
	must(create("b", "ada", 1, true))
	must(b.AddPartitions(t.Context(), "a", 4, false))
	_, err := b.AutoCreate(t.Context(), "auto", "ada")
	must(err)
	_, err = b.AutoCreate(t.Context(), "more", "ada")
	exceeds("created automatically", err, "max_partitions, 5")
	view := func(name string) error {
		_, err := b.Create(t.Context(), topic.Spec{Name: name, Owner: "ada", Settings: map[string]string{topic.SettingViewOf: "a", topic.SettingViewWhere: "true"}}, false)
		return err
	}
	must(view("view"))
	exceeds("another view", view("another"), "ada has 3 topics, and 1 more would exceed max_topics, 3")
	must(b.Delete(t.Context(), "auto"))
	stopBroker(t, b)

	b = startBroker(t, store, topic.Config{Partitions: 1}, broker.WithQuotas(allowed.of))
	must(create("c", "ada", 1, false))
	exceeds("after a restart", create("d", "ada", 1, false), "ada has 3 topics")
	must(create("d", "bob", 9, false))

	allowed["ada"] = topic.Quota{Topics: 5, Partitions: 2}
	must(view("another")) // it adds no partition to those that are too many
	exceeds("after the quota was lowered", b.AddPartitions(t.Context(), "c", 2, false), "ada has 5 partitions")
}

// Nodes that create topics for an owner at the same time do not exceed the quota, and leave nothing of it unused.
func TestQuotasAreExactOverNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, each = 7, 5
		c := newCrew(t, 3, topic.Config{Partitions: 1}, broker.WithQuotas(quotas{"ada": {Topics: most}, "bob": {Partitions: most}}.of))
		if _, err := c.brokers[1].Create(t.Context(), topic.Spec{Name: "grows", Owner: "bob"}, false); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for id, b := range c.brokers {
			all.Go(func() {
				for i := range each {
					if _, err := b.Create(t.Context(), topic.Spec{Name: fmt.Sprintf("of-%d-%d", id, i), Owner: "ada"}, false); err != nil && !errors.Is(err, topic.ErrQuota) {
						t.Error(err)
					}
					if _, err := b.Create(t.Context(), topic.Spec{Name: fmt.Sprintf("bobs-%d-%d", id, i), Owner: "bob"}, false); err != nil && !errors.Is(err, topic.ErrQuota) {
						t.Error(err)
					}
					if err := b.AddPartitions(t.Context(), "grows", int32(i+2), false); err != nil && !errors.Is(err, topic.ErrQuota) && !errors.Is(err, topic.ErrInvalidPartitions) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		for id, b := range c.brokers {
			adas, bobs := 0, 0
			for _, of := range b.Topics() {
				if strings.HasPrefix(of.Name(), "of-") {
					adas++
				} else {
					bobs += len(of.Partitions())
				}
			}
			if adas != most || bobs != most {
				t.Errorf("node %d knows %d topics of ada and %d partitions of bob, want %d each", id, adas, bobs, most)
			}
		}
	})
}
