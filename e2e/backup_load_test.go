//go:build long

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A backup is taken of a server under a load of producers and groups, with jobs, visitors, delayed
// records and a view. Restored elsewhere it has everything acknowledged before it was begun: records
// at their offsets and in their order, offsets of groups, and the rest as it was. The server has lost
// nothing by it. The first backup is full; each other continues the one before, and leaves out a topic
// that nobody has written to since.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	a := newBackupAmple(s)
	r := newTopicKillRun(s)
	s.newTopic("light", -1, "sluice.view.of", "orders", "sluice.view.where", `value < b"1"`)
	s.newTopic("still", 1)
	produceLarge(s, "still", stillBytes)
	until.True(t, "records are acknowledged", func() bool { return r.acknowledged.Load() >= 2000 })
	backups := t.TempDir()
	var chain []string // the arguments that restore it
	for n := range 3 {
		b := r.before()
		file := filepath.Join(backups, fmt.Sprint(n))
		takeBackup(s, file, chain)
		chain = append(chain, "--from", file)
		until.True(t, "records are acknowledged after it", func() bool { return r.acknowledged.Load() >= b.acknowledged+500 })
		restored := newServer(t)
		sluice(t, append([]string{"restore", "--data", restored.data}, chain...)...)
		sluice(t, "doctor", "--data", restored.data)
		restored.start()
		r.checkRestored(restored, b)
		a.check(restored)
		restored.terminate()
	}
	r.finish()
	r.check()
}

// takeBackup takes a backup that continues the last of those before, which are arguments of restore.
func takeBackup(s *server, file string, before []string) {
	s.t.Helper()
	args := []string{"backup", "--json", "--to", file, "--server", s.url("")}
	if len(before) > 0 {
		args = append(args, "--base", before[len(before)-1])
	}
	out, err := exec.Command(binary, args...).Output()
	var told struct {
		Bytes    int64  `json:"bytes"`
		NewBytes *int64 `json:"new_bytes"`
	}
	if err = errors.Join(err, json.Unmarshal(out, &told)); err != nil {
		s.t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if len(before) > 0 && (told.NewBytes == nil || told.Bytes-*told.NewBytes < stillBytes) {
		s.t.Errorf("an incremental backup has %s: want that it leaves out %d bytes or more", out, stillBytes)
	}
}

// beforeBackup is what was acknowledged when a backup was begun.
type beforeBackup struct {
	acknowledged int64
	records      [][]int // by producer and partition
	readers      map[string]map[int32]int64
}

func (r *topicKillRun) before() beforeBackup {
	b := beforeBackup{acknowledged: r.acknowledged.Load(), readers: map[string]map[int32]int64{}}
	for _, p := range r.producers {
		p.mu.Lock()
		var counts []int
		for _, offsets := range p.offsets {
			counts = append(counts, len(offsets))
		}
		p.mu.Unlock()
		b.records = append(b.records, counts)
	}
	for name, partitions := range killTopics {
		b.readers[name] = map[int32]int64{}
		for partition := range int32(partitions) {
			b.readers[name][partition] = r.readers.floor(name, partition)
		}
	}
	return b
}

// checkRestored checks the topics and groups of a restored server.
func (r *topicKillRun) checkRestored(s *server, b beforeBackup) {
	r.t.Helper()
	next := map[[2]int]int{}
	var light []int64
	for name := range killTopics {
		s.readTopic(name, until.Limit, func(record *kgo.Record) {
			number, sequence, err := readKillValue(record.Value)
			if err != nil {
				r.t.Fatalf("restored %s/%d, offset %d: %v", name, record.Partition, record.Offset, err)
			}
			p, key := r.producers[number], [2]int{number, int(record.Partition)}
			if want := next[key]; sequence != want || !slices.Equal(record.Value, p.value(sequence)) {
				r.t.Fatalf("restored %s/%d, offset %d: record %d of producer %d, want %d as it was sent", name, record.Partition, record.Offset, sequence, number, want)
			}
			next[key]++
			if name == "orders" && number == 0 && record.Partition == 0 {
				light = append(light, record.Offset)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if told := p.offsets[record.Partition]; sequence < len(told) && told[sequence] != record.Offset {
				r.t.Errorf("restored %s/%d, offset %d: producer %d was told %d", name, record.Partition, record.Offset, number, told[sequence])
			}
		})
	}
	for number, counts := range b.records {
		for partition, count := range counts {
			if got := next[[2]int{number, partition}]; got < count {
				r.t.Errorf("%d records of producer %d to partition %d are restored; %d were acknowledged before", got, number, partition, count)
			}
		}
	}
	r.checkRestoredGroups(s, b)
	r.checkRestoredView(s, light)
}

func (r *topicKillRun) checkRestoredGroups(s *server, b beforeBackup) {
	r.t.Helper()
	fetched, err := kadm.NewClient(s.connect()).FetchOffsets(r.t.Context(), "readers")
	if err != nil {
		r.t.Fatal(err)
	}
	for name, floors := range b.readers {
		ends := s.topicEnds(name)
		for partition, floor := range floors {
			if got, _ := fetched.Lookup(name, partition); floor > 0 && (got.At < floor || got.At > ends[partition]) {
				r.t.Errorf("restored %s/%d: the group has committed %d, want %d to the end %d", name, partition, got.At, floor, ends[partition])
			}
		}
	}
}

// checkRestoredView reads as many records of a partition of the view as its source has of them.
func (r *topicKillRun) checkRestoredView(s *server, want []int64) {
	r.t.Helper()
	client := s.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"light": {0: kgo.NewOffset().At(0)}}))
	defer client.Close()
	var got []int64
	until.True(r.t, "the view has the records", func() bool {
		client.PollFetches(r.t.Context()).EachRecord(func(record *kgo.Record) { got = append(got, record.Offset) })
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		r.t.Errorf("the restored view has the offsets %v, want %v", got, want)
	}
}
