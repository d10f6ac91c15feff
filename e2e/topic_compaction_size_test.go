//go:build long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// compactedUpdates is how many records TestCompactionAtSize sends to each topic. For the figures of docs/topic/compaction.md it was
// 10,000,000: go test -ldflags "-X …".
var compactedUpdates = "300000"

// updatesOfAKey is how often each key is updated, about.
const updatesOfAKey = 100

// recordBytes is the size of such a record, with what a batch of one has.
const recordBytes = 200

// manyUpdates are records of 100 bytes that update keys, and delete some, in the order of the calls.
type manyUpdates struct {
	producer *kgo.Client
	name     string
	before   int64 // what topics took then
	count    int
	last     map[string]int // which of them was sent last, by key; -1 for a tombstone
}

func newManyUpdates(s *server, name string, count int) *manyUpdates {
	return &manyUpdates{producer: s.connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(20_000), kgo.ProducerBatchCompression(kgo.NoCompression())),
		name: name, before: s.topicBytes(), count: count, last: map[string]int{}}
}

// send sends all, and returns how many were acknowledged in a second.
func (u *manyUpdates) send(t *testing.T) float64 {
	t.Helper()
	var failed atomic.Pointer[error]
	began := time.Now()
	for i := range u.count {
		r := &kgo.Record{Topic: u.name, Key: fmt.Append(nil, "key", rand.IntN(u.count/updatesOfAKey)), Value: fmt.Appendf(nil, "%0100d", i)}
		u.last[string(r.Key)] = i
		if rand.IntN(100) == 0 {
			u.last[string(r.Key)], r.Value = -1, nil
		}
		u.producer.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := u.producer.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	if err := failed.Load(); err != nil {
		t.Error(*err)
	}
	return float64(u.count) / time.Since(began).Seconds()
}

// topicBytes returns how much space topics take.
func (s *server) topicBytes() (bytes int64) {
	s.t.Helper()
	err := filepath.WalkDir(filepath.Join(s.data, "topic"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // it was just removed
			return nil
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes
}

// Many updates of many keys go to a compacted topic as fast as one program sends them. Then the server is killed, again and again, while
// as many go to another one. Each key has the value that was sent last in both, and none that was deleted is there.
func TestCompactionAtSize(t *testing.T) {
	t.Parallel()
	count, err := strconv.Atoi(compactedUpdates)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	s.start()
	for _, name := range []string{"plain", "alone", "killed"} {
		policy := "compact"
		if name == "plain" {
			policy = "delete"
		}
		s.newTopic(name, 1, "cleanup.policy", policy)
	}
	t.Logf("without compaction: %.0f records/s, %d MB", newManyUpdates(s, "plain", count).send(t), s.topicBytes()>>20)
	alone := newManyUpdates(s, "alone", count)
	t.Logf("with it: %.0f records/s, %d MB before all is compacted", alone.send(t), (s.topicBytes()-alone.before)>>20)
	alone.check(t, s)

	killed := newManyUpdates(s, "killed", count)
	producing := make(chan struct{})
	go func() {
		defer close(producing)
		killed.send(t)
	}()
	kills := 0
	for ended := false; !ended; {
		select {
		case <-producing:
			ended = true
		case <-time.After(rand.N(4 * time.Second)):
			s.kill()
			s.start()
			kills++
		}
	}
	bytes := s.topicBytes() - killed.before
	killed.check(t, s)
	t.Logf("%d kills, %d MB before all is compacted", kills, bytes>>20)
}

// check waits until a topic is compacted, and checks that it has what was sent last, once, in twice its space.
func (u *manyUpdates) check(t *testing.T, s *server) {
	t.Helper()
	lag := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.compaction.lag.ms", Value: kadm.StringPtr("1")}}
	if _, err := kadm.NewClient(u.producer).AlterTopicConfigs(t.Context(), lag, u.name); err != nil {
		t.Fatal(err)
	}
	got, _, _ := s.awaitCompacted(u.name, len(u.last))
	for key, i := range u.last {
		want := fmt.Sprintf("%0100d", i)
		if i < 0 {
			want = ""
		}
		if got[key] != want {
			t.Fatalf("%s: %s is %q, was sent as %q last", u.name, key, got[key], want)
		}
	}
	most := int64(2*len(u.last)*recordBytes) + 2<<20
	until.True(t, "what was compacted takes no space", func() bool { return s.topicBytes()-u.before <= most })
}
