//go:build cluster

package cluster

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// topicName is the topic of the load.
const topicName = "orders"

// connect returns a client that is closed when the test ends. It refreshes metadata, and gives up
// on a node that does not answer, sooner than clients do by default: then the measured interruption
// is the cluster's.
func (c *cluster) connect(options ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	var seeds []string
	for _, n := range c.nodes {
		seeds = append(seeds, n.addr())
	}
	rand.Shuffle(len(seeds), func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.AlwaysRetryEOF(), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.RetryTimeout(10 * time.Second),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 25*time.Millisecond + rand.N(50*time.Millisecond) }),
	}, options...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

// newTopic creates a topic once enough nodes are known: a ready node may not be known to all others
// yet.
func (c *cluster) newTopic(name string, partitions, replicas int) {
	c.t.Helper()
	client := c.connect()
	defer client.Close()
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(20_000)
	asked := false
	until.Succeeds(c.t, "create "+name, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
		defer cancel()
		made, err := admin.CreateTopic(ctx, int32(partitions), int16(replicas), nil, name)
		if err = errors.Join(err, made.Err); asked && errors.Is(err, kerr.TopicAlreadyExists) {
			return nil // the answer before this one came too late
		}
		asked = true
		return err
	})
}

// partitionsOf returns the metadata of a topic's partitions; none if no node answers.
func partitionsOf(t *testing.T, admin *kadm.Client, name string) []kadm.PartitionDetail {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	told, err := admin.Metadata(ctx, name)
	if err != nil || told.Topics[name].Err != nil {
		return nil
	}
	return told.Topics[name].Partitions.Sorted()
}

// leader waits until all partitions have a leader, and returns the node that leads
// most of them.
func (c *cluster) leader(admin *kadm.Client) int {
	c.t.Helper()
	var most int
	eventually(c.t, until.Limit, "all partitions have a leader", func() bool {
		counts := map[int]int{}
		for _, p := range partitionsOf(c.t, admin, topicName) {
			counts[int(p.Leader)]++
		}
		for id, count := range counts {
			if most == 0 || count > counts[most] || counts[most] == 0 {
				most = id
			}
		}
		return len(counts) > 0 && counts[-1] == 0
	})
	return most
}

// whole reports whether all partitions of the topic have a leader and the given number of in-sync
// replicas.
func whole(t *testing.T, admin *kadm.Client, replicas int) bool {
	t.Helper()
	told := partitionsOf(t, admin, topicName)
	return len(told) > 0 && !slices.ContainsFunc(told, func(p kadm.PartitionDetail) bool {
		return p.Err != nil || p.Leader < 1 || len(p.ISR) != replicas || len(p.Replicas) != replicas
	})
}

// ends returns the end of each partition.
func (c *cluster) ends(admin *kadm.Client) map[int32]int64 {
	c.t.Helper()
	ends := map[int32]int64{}
	eventually(c.t, until.Limit, "the ends of the partitions are told", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		listed, err := admin.ListEndOffsets(ctx, topicName)
		if err == nil {
			err = listed.Error()
		}
		if err != nil {
			return false
		}
		for partition, end := range listed[topicName] {
			ends[partition] = end.Offset
		}
		return true
	})
	return ends
}

// reached reports whether the positions are at the ends.
func reached(positions, ends map[int32]int64) bool {
	at := maps.Clone(positions)
	maps.DeleteFunc(at, func(_ int32, offset int64) bool { return offset == 0 })
	want := maps.Clone(ends)
	maps.DeleteFunc(want, func(_ int32, offset int64) bool { return offset == 0 })
	return maps.Equal(at, want)
}
