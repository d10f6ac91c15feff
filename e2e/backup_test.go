package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
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

// sluice runs a command that must succeed.
func sluice(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// stillBytes is how much the topic has that nobody writes to during backups.
const stillBytes = 10 << 20

// produceLarge fills a topic with so many bytes of records, at least.
func produceLarge(s *server, name string, bytes int) {
	s.t.Helper()
	producer := s.connect(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for sent := 0; sent < bytes; sent += 900_000 {
		if err := producer.ProduceSync(s.t.Context(), &kgo.Record{Topic: name, Value: make([]byte, 900_000)}).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
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

// backupAmple is what a server has of the other parts: jobs that wait, visitors, and delayed
// records that are not due.
type backupAmple struct {
	action  string
	tickets []string
	delayed string
}

func newBackupAmple(s *server) *backupAmple {
	s.t.Helper()
	a := &backupAmple{}
	var made action
	s.call("POST", "/v1/actions", `{"tenant":"t","type":"nobody-runs-it"}`, http.StatusCreated, &made)
	a.action = made.ID
	s.upload(a.action, ndjson, strings.Repeat(`{"n":1}`+"\n", 500), 0)
	s.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`, http.StatusCreated, nil)
	for range 30 {
		a.tickets = append(a.tickets, s.enter("shop", "", http.StatusCreated).Ticket)
	}
	s.newTopic("later", 1, "sluice.delay.enable", "true")
	producer := s.connect()
	for n := range 20 {
		record := &kgo.Record{Topic: "later", Value: fmt.Append(nil, n), Headers: []kgo.RecordHeader{{Key: "sluice-delay", Value: []byte("1h")}}}
		if err := producer.ProduceSync(s.t.Context(), record).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	a.delayed = a.waiting(s)
	return a
}

// waiting returns the delayed records, as the API shows them.
func (a *backupAmple) waiting(s *server) string {
	s.t.Helper()
	answer, err := s.do("GET", "/v1/topics/later/delayed", "", nil)
	if err != nil || answer.status != http.StatusOK {
		s.t.Fatalf("delayed records: %d %s %v", answer.status, answer.body, err)
	}
	return string(answer.body)
}

func (a *backupAmple) check(s *server) {
	s.t.Helper()
	if got := s.action(a.action); got.Received != 500 {
		s.t.Errorf("the restored action has %d jobs, want 500", got.Received)
	}
	for n, ticket := range a.tickets {
		if v := s.ask("shop", ticket); v.ID != int64(n+1) {
			s.t.Errorf("visitor %d of the restored room is %d, %s", n+1, v.ID, v.Status)
		}
	}
	if got := a.waiting(s); got != a.delayed {
		s.t.Errorf("delayed records are\n%s\nwant\n%s", got, a.delayed)
	}
}

// A backup that is not read, or that is cut off, leaves nothing in the data directory and no file, and
// another one can be taken. While one is taken there is no second.
func TestBackupCutOff(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.newTopic("large", 1)
	produceLarge(s, "large", 36<<20) // more than the buffers of a connection hold
	response, err := http.Post(s.url("/v1/backup"), "", nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("begin a backup: %v %v", response, err)
	}
	s.refuses("POST", "/v1/backup", "", "", http.StatusServiceUnavailable)
	response.Body.Close()
	file := filepath.Join(t.TempDir(), "backup")
	until.True(t, "another one is taken", func() bool {
		return exec.Command(binary, "backup", "--to", file, "--server", s.url("")).Run() == nil
	})
	until.True(t, "the snapshot is removed", func() bool {
		_, err := os.Stat(filepath.Join(s.data, "backup.new"))
		return os.IsNotExist(err)
	})
	response, err = http.Post(s.url("/v1/backup"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s.kill() // with a snapshot
	s.start()
	if _, err := os.Stat(filepath.Join(s.data, "backup.new")); !os.IsNotExist(err) {
		t.Errorf("a start has left the snapshot of a killed server: %v", err)
	}
	if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
