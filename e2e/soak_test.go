//go:build long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// soakSeconds is how long TestSoak goes on. make soak sets it: go test -ldflags "-X …".
var soakSeconds = "60"

// TestSoak has all three parts at work on one server, with faults of every kind, one after another. In the first
// quarter of the time some of them end the server; in the rest one process runs, whose memory, goroutines and open
// files must not grow. All the time, and at the end: each job of an action is delivered and counted once, each
// acknowledged record stands once at the offset that its producer was told, a transactional copy has each record once,
// and guests are served as their waiting room promises.
func TestSoak(t *testing.T) {
	t.Parallel()
	seconds, err := strconv.Atoi(soakSeconds)
	if err != nil {
		t.Fatal(err)
	}
	goesOn := time.Duration(seconds) * time.Second
	s := newServer(t, "--bulk-retention", "2m", "--bulk-stream-window", "1m")
	s.start()
	load := newSoak(s)
	began := time.Now()
	var samples []soakSample
	for round := 0; time.Since(began) < goesOn; round++ {
		faults := soakFaults
		if steady := time.Since(began) >= goesOn/4; !steady {
			faults = slices.Concat(soakFaults, soakEnds)
		}
		fault := faults[round%len(faults)]
		fault.do(load)
		took := load.settle()
		sample := s.sample()
		if len(faults) == len(soakFaults) {
			samples = append(samples, sample)
		}
		t.Logf("%8s  %-42s all parts went on within %6s  %s", time.Since(began).Round(time.Second), fault.name, took.Round(100*time.Millisecond), sample)
		if t.Failed() {
			return
		}
	}
	load.finish()
	s.kill()
	s.start()
	load.check()
	flat(t, samples)
}

// soakFaults leave the process running; soakEnds end it.
var (
	soakFaults = []soakFault{
		{"the target refuses", func(s *soak) { s.target.behave(refusing); s.wait(10 * time.Second); s.target.behave(answering) }},
		{"the target hangs", func(s *soak) { s.target.behave(hanging); s.wait(10 * time.Second); s.target.behave(answering) }},
		{"the server hangs for three seconds", func(s *soak) {
			s.guests.outageOf(func() { s.server.hang(); s.wait(3 * time.Second); s.server.resume() }, true)
		}},
		{"500 connections with half a request", (*soak).halfRequests},
		{"200 malformed frames", func(s *soak) {
			for range 200 {
				sendMalformed(s.server, malformed(rand.Uint64()))
			}
		}},
		{"bodies that are too large", (*soak).tooLarge},
		{"topics and rooms come and go", (*soak).comeAndGo},
	}
	soakEnds = []soakFault{
		{"SIGKILL", func(s *soak) { s.guests.outageOf(func() { s.server.kill(); s.server.start() }, true) }},
		{"SIGKILL, and again as it starts", func(s *soak) {
			s.guests.outageOf(func() {
				s.server.kill()
				s.server.launch()
				s.wait(rand.N(250 * time.Millisecond))
				s.server.kill()
				s.server.start()
			}, true)
		}},
		{"SIGTERM", func(s *soak) { s.guests.outageOf(func() { s.server.terminate(); s.server.start() }, true) }},
	}
)

type soakFault struct {
	name string
	do   func(*soak)
}

// soak is the load of all parts.
type soak struct {
	*testing.T
	server *server
	target *moodyTarget
	guests *crowd
	copies *copyRun
	admin  *kadm.Client

	jobs    atomic.Int64 // of actions that finished as they should
	written atomic.Int64 // acknowledged records
	copied  atomic.Int64 // records that a reader of the copy has seen
	stop    context.CancelFunc
	work    sync.WaitGroup
	reading context.CancelFunc
	readers sync.WaitGroup
	ends    [copyPartitions]atomic.Int64 // one after the last acknowledged record of each partition
	read    [copyPartitions]atomic.Int64 // the record of the copy that comes next
}

const (
	soakTenants, soakJobs = 5, 100
	// soakKept is what a partition keeps, beside its newest file of 64 MiB. The copy is fewer than soakBehind records
	// behind, which are kept.
	soakKept, soakBehind = 4 << 20, 500
	// soakData bounds the data: what the partitions of both topics keep, and as much as a quarter of it for the rest.
	soakData = 2 * copyPartitions * (soakKept + 64<<20) * 5 / 4
)

func newSoak(server *server) *soak {
	s := &soak{T: server.t, server: server, target: newMoodyTarget(server.t), copies: &copyRun{T: server.t, server: server, polled: 64 << 10}}
	s.admin = kadm.NewClient(server.connect())
	for _, name := range []string{copyInput, copyOutput} {
		server.newTopic(name, copyPartitions, "retention.bytes", fmt.Sprint(soakKept))
	}
	plan := crowdPlan{
		room: "shop", count: 1 << 30, together: 100, near: 20,
		ttl: 5 * time.Second, claim: 4 * time.Second, abandon: 6 * time.Second, grace: 3 * time.Second, slides: true, stay: 3 * time.Second,
	}
	server.call("PUT", "/v1/rooms/"+plan.room, plan.teller(20), http.StatusCreated, nil)
	s.guests = newCrowd(s.T, plan, server)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	for tenant := range soakTenants {
		s.work.Go(func() { s.submit(ctx, fmt.Sprint("tenant-", tenant)) })
	}
	producer := server.connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(200))
	s.work.Go(func() { s.produce(ctx, producer) })
	reading, stopReading := context.WithCancel(context.Background())
	s.reading = stopReading
	for number := range 2 {
		s.readers.Go(func() { s.copies.program(reading, number) })
	}
	reader := server.connect(kgo.ConsumeTopics(copyOutput), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	s.readers.Go(func() { s.readCopies(reading, reader) })
	s.Cleanup(func() { // also if the test has failed
		stop()
		stopReading()
		s.work.Wait()
		s.readers.Wait()
	})
	return s
}

func (s *soak) wait(d time.Duration) { <-time.After(d) }

// submit sends actions one after another, and checks the counts of each when it has finished.
func (s *soak) submit(ctx context.Context, tenant string) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", tenant, n)
		var lines strings.Builder
		for i := range soakJobs {
			fmt.Fprintln(&lines, i)
		}
		spec := fmt.Sprintf(`{"id":%q,"tenant":%q,"target":{"url":%q},"max_attempts":%d,"timeout_ms":5000}`, id, tenant, s.target.URL, bulkMaxAttempts)
		s.again("POST", "/v1/actions", "application/json", spec)
		s.again("POST", "/v1/actions/"+id+"/jobs", ndjson, lines.String(), "Upload-Offset", "0")
		s.again("POST", "/v1/actions/"+id+"/seal", "application/json", fmt.Sprintf(`{"total":%d}`, soakJobs))
		var a action
		until.True(s.T, id+" finishes", func() bool {
			answer, err := s.server.do("GET", "/v1/actions/"+id, "", nil)
			return err == nil && answer.status == http.StatusOK && answer.json(&a) == nil && a.FinishedAt != nil || s.Failed()
		})
		if a.Succeeded != soakJobs || a.Received != soakJobs || a.Failed != 0 || a.Canceled != 0 {
			s.Errorf("%s: %+v, want that %d jobs have succeeded", id, a, soakJobs)
		}
		if missing := s.target.missing(id); missing > 0 {
			s.Errorf("%s: the target was never told of %d jobs that count", id, missing)
		}
		s.jobs.Add(soakJobs)
		pause(ctx, time.Second)
	}
}

// again makes a request until it is answered, and taken or there already.
func (s *soak) again(method, path, contentType, body string, header ...string) {
	until.Succeeds(s.T, method+" "+path, func() error {
		a, err := s.server.do(method, path, contentType, []byte(body), header...)
		if err == nil && a.status >= 300 {
			err = fmt.Errorf("%d %s", a.status, a.body)
		}
		return err
	})
}

// produce writes each partition's records, numbered by their offsets.
func (s *soak) produce(ctx context.Context, client *kgo.Client) {
	next := [copyPartitions]int64{}
	for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
		for partition := range next {
			number := next[partition]
			if number-s.read[partition].Load() >= soakBehind {
				continue
			}
			next[partition]++
			value := fmt.Appendf(nil, "%d %s", number, killPadding[:rand.N(7000)])
			client.Produce(context.Background(), &kgo.Record{Topic: copyInput, Partition: int32(partition), Value: value}, func(r *kgo.Record, err error) {
				if err != nil || r.Offset != number {
					s.Errorf("%s/%d: record %d was told offset %d: %v", copyInput, partition, number, r.Offset, err)
				}
				s.ends[partition].Store(number + 1)
				s.written.Add(1)
			})
		}
	}
	if err := client.Flush(context.Background()); err != nil {
		s.Error(err)
	}
}

// readCopies checks that the copy has each record once, in order.
func (s *soak) readCopies(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, partition int32, err error) {
			// franz-go forgets the leader epoch of markers, and then takes one that begins an epoch for lost.
			var reset *kgo.ErrDataLoss
			if ctx.Err() == nil && !awayOrLoading(err) && !errors.As(err, &reset) {
				s.Errorf("read %s/%d: %v", copyOutput, partition, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			first, _, _ := strings.Cut(string(r.Value), " ")
			if number, err := strconv.ParseInt(first, 10, 64); err != nil || !s.read[r.Partition].CompareAndSwap(number, number+1) {
				s.Errorf("%s/%d, offset %d: %.30q, want record %d", copyOutput, r.Partition, r.Offset, r.Value, s.read[r.Partition].Load())
			}
			s.copied.Add(1)
		})
	}
}

// settle waits until all parts go on, and returns how long that took.
func (s *soak) settle() time.Duration {
	s.Helper()
	began := time.Now()
	parts := map[string]struct {
		done *atomic.Int64
		more int64
	}{"jobs": {&s.jobs, soakJobs}, "records": {&s.written, 100}, "copies": {&s.copied, 100}, "guests": {&s.guests.ended, 20}}
	wanted := map[string]int64{}
	for part, of := range parts {
		wanted[part] = of.done.Load() + of.more
	}
	for part, of := range parts {
		until.True(s.T, part+" go on", func() bool { return of.done.Load() >= wanted[part] || s.Failed() || s.guests.failing() })
	}
	return time.Since(began)
}

// finish ends the load when all that was begun has ended, and guests when each has had its visit.
func (s *soak) finish() {
	s.Helper()
	s.stop()
	s.work.Wait()
	s.caughtUp()
	s.guests.mu.Lock()
	s.guests.plan.count = len(s.guests.all)
	s.guests.mu.Unlock()
	s.guests.wait.Wait()
}

// caughtUp waits until the copy has all acknowledged records.
func (s *soak) caughtUp() {
	s.Helper()
	until.True(s.T, "all records are copied", func() bool {
		for partition := range copyPartitions {
			if s.read[partition].Load() != s.ends[partition].Load() {
				return false
			}
		}
		return true
	})
}

// check compares what a restarted server has with what was acknowledged.
func (s *soak) check() {
	s.Helper()
	s.reading()
	s.readers.Wait()
	for partition, end := range s.server.topicEnds(copyInput) {
		if want := s.ends[partition].Load(); end != want {
			s.Errorf("%s/%d ends at %d, want %d", copyInput, partition, end, want)
		}
	}
	awaitEmpty(s.T, s.server, s.guests.plan.room)
	s.Logf("%d jobs, delivered %d times; %d records, %d copied; %d guests, %d of whom came in", s.jobs.Load(), s.target.calls.Load(), s.written.Load(),
		s.copied.Load(), s.guests.ended.Load(), s.guests.admitted.Load())
}

// halfRequests opens connections that begin a request and never end it.
func (s *soak) halfRequests() {
	var crowd []net.Conn
	for i := range 500 {
		conn, err := net.Dial("tcp", []string{s.server.addr, s.server.kafka}[i%2])
		if err != nil {
			s.Error(err)
			break
		}
		crowd = append(crowd, conn)
		_, _ = io.WriteString(conn, []string{"POST /v1/actions HTTP/1.1\r\n", "\x00\x00\x01\x00"}[i%2])
	}
	s.wait(3 * time.Second)
	for _, conn := range crowd {
		_ = conn.Close()
	}
}

// tooLarge sends a body of 128 MiB.
func (s *soak) tooLarge() {
	a, err := s.server.do("POST", "/v1/jobs", "application/json", make([]byte, 128<<20))
	if err == nil && a.status != http.StatusRequestEntityTooLarge && a.status != http.StatusBadRequest {
		s.Errorf("a body of 128 MiB: %d %s", a.status, a.body)
	}
}

// comeAndGo makes topics and rooms, uses them, and deletes them.
func (s *soak) comeAndGo() {
	for i := range 10 {
		room, topic := fmt.Sprint("/v1/rooms/passing-", i), fmt.Sprint("passing-", i)
		s.again("PUT", room, "application/json", `{"mode":"teller","capacity":1}`)
		s.again("POST", room+"/visitors", "application/json", `{}`)
		s.again("DELETE", room, "", "")
		if _, err := s.admin.CreateTopic(s.Context(), 3, 1, nil, topic); err != nil {
			s.Errorf("create %s: %v", topic, err)
		}
		if _, err := s.admin.DeleteTopic(s.Context(), topic); err != nil {
			s.Errorf("delete %s: %v", topic, err)
		}
	}
}

// mood is how a target behaves.
type mood int32

const (
	answering mood = iota
	refusing
	hanging
)

// moodyTarget counts the calls of each job of an action until the action is looked at.
type moodyTarget struct {
	*httptest.Server
	mood  atomic.Int32
	calls atomic.Int64
	mu    sync.Mutex
	told  map[string]map[string]bool // jobs by action
}

func newMoodyTarget(t *testing.T) *moodyTarget {
	m := &moodyTarget{told: map[string]map[string]bool{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch mood(m.mood.Load()) {
		case refusing:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case hanging:
			<-r.Context().Done()
			return
		}
		m.calls.Add(1)
		id := r.Header.Get("webhook-id")
		action, _, _ := bulk.ParseJobID(id)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.told[action] == nil {
			m.told[action] = map[string]bool{}
		}
		m.told[action][id] = true
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *moodyTarget) behave(as mood) { m.mood.Store(int32(as)) }

// missing returns how many jobs of an action the target was not told of, and forgets the action.
func (m *moodyTarget) missing(action string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := len(m.told[action])
	delete(m.told, action)
	return soakJobs - told
}

// soakSample is what a process takes of its machine.
type soakSample struct {
	memory, data      int64 // bytes
	goroutines, files float64
}

func (s soakSample) String() string {
	return fmt.Sprintf("%4d MiB of memory, %4.0f goroutines, %4.0f files, %5d MiB of data", s.memory>>20, s.goroutines, s.files, s.data>>20)
}

func (s *server) sample() soakSample {
	s.t.Helper()
	sample := soakSample{memory: s.memory()}
	for name, value := range map[string]*float64{"go_goroutines": &sample.goroutines, "process_open_fds": &sample.files} {
		until.Succeeds(s.t, name, func() (err error) {
			*value, err = s.metric(name)
			return err
		})
	}
	_ = filepath.WalkDir(s.data, func(_ string, entry fs.DirEntry, _ error) error {
		if entry != nil && !entry.IsDir() {
			if info, err := entry.Info(); err == nil { // else it was removed in the meantime
				sample.data += info.Size()
			}
		}
		return nil
	})
	return sample
}

// flat compares the second quarter of the samples with the last one, and all with the bound of the data.
func flat(t *testing.T, samples []soakSample) {
	t.Helper()
	for _, sample := range samples {
		if sample.data > soakData {
			t.Errorf("%d MiB of data, want at most %d", sample.data>>20, soakData>>20)
		}
	}
	quarter := len(samples) / 4
	if quarter < 3 {
		t.Logf("%d samples of one process are too few to say whether anything grows", len(samples))
		return
	}
	median := func(of []soakSample, value func(soakSample) float64) float64 {
		var all []float64
		for _, sample := range of {
			all = append(all, value(sample))
		}
		return slices.Sorted(slices.Values(all))[len(all)/2]
	}
	for name, of := range map[string]struct {
		value func(soakSample) float64
		slack float64
	}{
		"memory":     {func(s soakSample) float64 { return float64(s.memory) }, 32 << 20},
		"goroutines": {func(s soakSample) float64 { return s.goroutines }, 50},
		"files":      {func(s soakSample) float64 { return s.files }, 20},
	} {
		early, late := median(samples[quarter:2*quarter], of.value), median(samples[len(samples)-quarter:], of.value)
		t.Logf("%s: %.0f in the second quarter of the steady time, %.0f in the last", name, early, late)
		if late > 1.2*early+of.slack {
			t.Errorf("%s has grown from %.0f to %.0f", name, early, late)
		}
	}
}
