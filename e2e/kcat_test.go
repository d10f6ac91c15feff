//go:build kcat

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// kcatRecord is a record as "kcat -J" prints it.
type kcatRecord struct {
	Topic     string
	Partition int32
	Offset    int64
	Time      int64 `json:"ts"`
	Headers   []string
	Key       *string
	Payload   *string
}

// kcatWaits makes kcat wait for the topics' leaders for longer than the 5 s of its own, which a busy machine
// may take. It waits as long for a server that refuses it, unless it produces.
var kcatWaits = []string{"-m", strconv.Itoa(int(patience.Seconds()))}

// kcat runs kcat with an input, and returns its output.
func (s *server) kcat(t *testing.T, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "kcat", slices.Concat([]string{"-b", strings.Join(s.seeds(), ","), "-q"}, kcatWaits, args)...)
	command.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		t.Fatalf("kcat %s: %v\n%.1000s%.1000s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// kcatRecords runs kcat, which must print records.
func (s *server) kcatRecords(t *testing.T, args ...string) (records []kcatRecord) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(s.kcat(t, "", append([]string{"-J", "-u"}, args...)...)))
	for {
		var record kcatRecord
		err := decoder.Decode(&record)
		if errors.Is(err, io.EOF) {
			return records
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
}

// kcatValues runs kcat, and returns the values that it consumes.
func (s *server) kcatValues(t *testing.T, args ...string) (values []string) {
	t.Helper()
	for _, record := range s.kcatRecords(t, args...) {
		values = append(values, *record.Payload)
	}
	return values
}

// Keys, headers, null values and every codec survive a round trip through kcat.
func TestKcatRecords(t *testing.T) { onNodes(t, testKcatRecords) }

func testKcatRecords(t *testing.T, s *server) {
	franz{s}.create(t, "orders", 2)
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	long := strings.Repeat("long ", 1000)
	for _, codec := range codecs {
		// The records linger until they form one batch: kcat does not compress a record that would
		// not get smaller.
		s.kcat(t, "key:value\ndeleted:\n:no key\nlong:"+long+"\n", "-P", "-t", "orders", "-p", "1", "-K:", "-Z", "-z", codec, "-X", "linger.ms=1000", "-H", "tag=paid", "-H", "tag=again", "-H", "empty=")
	}
	records := s.kcatRecords(t, "-C", "-t", "orders", "-p", "1", "-o", "beginning", "-e")
	if len(records) != 4*len(codecs) {
		t.Fatalf("%d records", len(records))
	}
	now := time.Now()
	text := func(text string) *string { return &text }
	for i, record := range records {
		if at := time.UnixMilli(record.Time); at.Before(now.Add(-5*time.Minute)) || at.After(now.Add(time.Minute)) {
			t.Errorf("record %d is of %v", i, at)
		}
		record.Time = 0
		want := []kcatRecord{{Key: text("key"), Payload: text("value")}, {Key: text("deleted")}, {Payload: text("no key")}, {Key: text("long"), Payload: &long}}[i%4]
		want.Topic, want.Partition, want.Offset, want.Headers = "orders", 1, int64(i), []string{"tag", "paid", "tag", "again", "empty", ""}
		got, wanted := asJSON(t, record), asJSON(t, want)
		equal(t, "record", got, wanted)
	}
	// kcat compresses only for a broker that announces Produce from version 0.
	stored := franz{s}.client(t, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for i, record := range poll(t, stored, len(records)) {
		equal(t, "codec", int(record.Attrs.CompressionType()), i/4)
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kcat seeks by offset, from the end and by time, and asks for offsets.
func TestKcatSeek(t *testing.T) { onNodes(t, testKcatSeek) }

func testKcatSeek(t *testing.T, s *server) {
	f := franz{s}
	f.create(t, "orders", 1)
	records := numbered("orders", 0, 0, 10)
	for i, record := range records {
		record.Timestamp = time.UnixMilli(1_700_000_000_000 + int64(i)*1000)
	}
	f.send(t, records)
	for _, test := range []struct {
		from []string
		want []*kgo.Record
	}{
		{[]string{"-o", "beginning"}, records},
		{[]string{"-o", "4"}, records[4:]},
		{[]string{"-o", "-3"}, records[7:]},
		{[]string{"-o", "s@1700000005000"}, records[5:]},
		{[]string{"-o", "s@1700000005001", "-o", "e@1700000008000"}, records[6:8]},
		{[]string{"-o", "end"}, nil},
	} {
		equal(t, strings.Join(test.from, " "), s.kcatValues(t, append([]string{"-C", "-t", "orders", "-p", "0", "-e"}, test.from...)...), values(test.want))
	}
	for query, want := range map[string]string{"-2": "0", "-1": "10", "1700000005000": "5", "1700000005001": "6", "1700000100000": "-1"} {
		equal(t, "offset of "+query, s.kcat(t, "", "-Q", "-t", "orders:0:"+query), "orders [0] offset "+want+"\n")
	}
}

// kcat creates a topic by writing to it, and lists topics with leaders, replicas and in-sync
// replicas; it has no other administration.
func TestKcatMetadata(t *testing.T) { onNodes(t, testKcatMetadata) }

func testKcatMetadata(t *testing.T, s *server) {
	s.kcat(t, "a\n", "-P", "-t", "made")
	var listed struct {
		Brokers []struct{ Name string }
		Topics  []struct {
			Topic      string
			Partitions []struct {
				Partition, Leader int32
				Replicas, Isrs    []struct{ ID int32 }
			}
		}
	}
	if err := json.Unmarshal([]byte(s.kcat(t, "", "-L", "-J")), &listed); err != nil {
		t.Fatal(err)
	}
	if s.nodes == nil {
		equal(t, "metadata", fmt.Sprint(listed), fmt.Sprintf("{[{%s}] [{made [{0 1 [{1}] [{1}]}]}]}", s.kafka))
		return
	}
	var brokers []string
	for _, broker := range listed.Brokers {
		brokers = append(brokers, broker.Name)
	}
	slices.Sort(brokers)
	equal(t, "brokers", brokers, slices.Sorted(slices.Values(s.seeds())))
	made := listed.Topics[0].Partitions[0]
	equal(t, "replicas", len(made.Replicas), 3)
	equal(t, "preferred leader", made.Leader, made.Replicas[0].ID)
}

// kcatMember is a kcat that consumes in a group until it is stopped.
type kcatMember struct {
	command *exec.Cmd
	mu      sync.Mutex
	out     bytes.Buffer
}

func (m *kcatMember) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.Write(b)
}

func (m *kcatMember) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.String()
}

// assigned returns how many partitions the member was last assigned, and -1 if they were revoked
// since.
func (m *kcatMember) assigned() int {
	_, last, _ := cutLast(m.text(), " rebalanced (memberid ")
	_, list, ok := strings.Cut(last, "assigned: ")
	list, _, ended := strings.Cut(list, "\n")
	if !ok || !ended {
		return -1
	}
	return strings.Count(list, "[")
}

func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// leave ends the member as Ctrl-C does: it commits and leaves.
func (m *kcatMember) leave(t *testing.T) {
	t.Helper()
	if err := m.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = m.command.Wait() // kcat may exit with any status then
}

func (s *server) kcatMember(t *testing.T) *kcatMember {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &kcatMember{command: exec.CommandContext(ctx, "kcat", "-b", strings.Join(s.seeds(), ","), "-G", "readers", "-u", "-f", "<%s>\n",
		"-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=100", "-X", "fetch.wait.max.ms=100", "orders")}
	m.command.Stdout, m.command.Stderr = m, m
	if err := m.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = m.command.Wait()
		if t.Failed() {
			t.Logf("kcat: %.2000s", m.text())
		}
	})
	return m
}

// A group of kcat members resumes where the last member left, also after a kill of the server; a
// second member takes half and gives it back.
func TestKcatGroup(t *testing.T) { onNodes(t, testKcatGroup) }

func testKcatGroup(t *testing.T, s *server) {
	franz{s}.create(t, "orders", 4)
	s.kcat(t, input(numbers(0, 10)), "-P", "-t", "orders", "-p", "2")
	group := []string{"-G", "readers", "-X", "auto.offset.reset=earliest", "-X", "fetch.wait.max.ms=100", "-X", "session.timeout.ms=6000", "orders"}
	equal(t, "first", s.kcatValues(t, append([]string{"-c", "4"}, group...)...), numbers(0, 4))
	s.crash(t, "orders", "readers")
	equal(t, "second", s.kcatValues(t, append([]string{"-c", "6"}, group...)...), numbers(4, 10))

	first := s.kcatMember(t)
	until.True(t, "the first has all", func() bool { return first.assigned() == 4 })
	second := s.kcatMember(t)
	until.True(t, "each has two", func() bool { return first.assigned() == 2 && second.assigned() == 2 })
	for partition := range 4 {
		s.kcat(t, fmt.Sprintln("of", partition), "-P", "-t", "orders", "-p", fmt.Sprint(partition))
	}
	got := func(members ...*kcatMember) (got []string) {
		for _, m := range members {
			for line := range strings.Lines(m.text()) {
				if value, ok := strings.CutPrefix(line, "<"); ok {
					got = append(got, strings.TrimSuffix(value, ">\n"))
				}
			}
		}
		slices.Sort(got)
		return got
	}
	until.True(t, "all is read", func() bool { return len(got(first, second)) >= 4 })
	equal(t, "each has read half", []int{len(got(first)), len(got(second))}, []int{2, 2})
	first.leave(t)
	until.True(t, "the second has all", func() bool { return second.assigned() == 4 })
	s.kcat(t, "last\n", "-P", "-t", "orders", "-p", "0")
	until.True(t, "the last is read", func() bool { return len(got(first, second)) >= 5 })
	equal(t, "read", got(first, second), []string{"last", "of 0", "of 1", "of 2", "of 3"})
}

// kcat reads a view past 20,000 hidden records and stops at its end.
func TestKcatView(t *testing.T) { onNodes(t, testKcatView) }

func testKcatView(t *testing.T, s *server) {
	franz{s}.create(t, "orders", 1)
	franz{s}.create(t, "paid", -1, "sluice.view.of", "orders", "sluice.view.where", `headers.tag == "paid"`)
	send := func(tag string, from, to int) {
		t.Helper()
		s.kcat(t, input(numbers(from, to)), "-P", "-t", "orders", "-p", "0", "-H", "tag="+tag, "-z", "lz4")
	}
	send("paid", 0, 10)
	send("open", 10, 20_010)
	send("paid", 20_010, 20_020)
	send("open", 20_020, 40_020)
	want := append(numbers(0, 10), numbers(20_010, 20_020)...)
	records := s.kcatRecords(t, "-C", "-t", "paid", "-o", "beginning", "-e")
	var got, offsets []string
	for _, record := range records {
		got, offsets = append(got, *record.Payload), append(offsets, fmt.Sprint(record.Offset))
	}
	equal(t, "view", got, want)
	equal(t, "offsets", offsets, want)
	group := []string{"-G", "readers", "-X", "auto.offset.reset=earliest", "paid"}
	equal(t, "group", s.kcatValues(t, append([]string{"-c", "5"}, group...)...), want[:5])
	equal(t, "group that reads on", s.kcatValues(t, append([]string{"-c", "15"}, group...)...), want[5:])
}

// A delayed record appears after a record that is sent later without a delay.
func TestKcatDelays(t *testing.T) { onNodes(t, testKcatDelays) }

func testKcatDelays(t *testing.T, s *server) {
	for delay := time.Second; ; delay *= 2 {
		name := "reminders-" + delay.String()
		franz{s}.create(t, name, 1, "sluice.delay.enable", "true")
		began := time.Now()
		s.kcat(t, "later\n", "-P", "-t", name, "-p", "0", "-H", "sluice-delay="+delay.String(), "-H", "sluice-id=a", "-z", "gzip")
		s.kcat(t, "now\n", "-P", "-t", name, "-p", "0")
		inTime := time.Since(began) < delay
		got := s.kcatValues(t, "-C", "-t", name, "-o", "beginning", "-c", "2")
		if inTime || delay > patience {
			equal(t, "delayed", got, []string{"now", "later"})
			return
		}
	}
}
