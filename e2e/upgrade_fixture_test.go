package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/earlier"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

var fixtureOf = flag.String("fixture", "", "revision of the repository that TestUpgradeFixture makes a fixture of: its tag")

// maxFixture is the most bytes of a fixture.
const maxFixture = 300 << 10

// A fixture of upgrades is made by the revision that -fixture names, in the repository ("make fixture"), and otherwise by this version, in a temporary
// folder. This version opens it.
func TestUpgradeFixture(t *testing.T) {
	t.Parallel()
	s, folder := newServer(t, forEver...), t.TempDir()
	if *fixtureOf != "" {
		s.program, folder = earlier.Build(t, "..", *fixtureOf), filepath.Join(upgrades, *fixtureOf)
	}
	s.start()
	var k keptData
	s.keepTopics(&k)
	s.keepBulk(&k)
	s.keepRooms(&k)
	s.keepToken(&k)
	writeKept(t, folder, "kept.json", k)
	file := filepath.Join(folder, "data.tar.gz")
	pack := exec.CommandContext(t.Context(), "tar", "-c", "-S", "-z", "-f", file, "--owner=0", "--group=0", "-C", s.data, ".")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if packed, err := os.Stat(file); err != nil || packed.Size() > maxFixture {
		t.Fatalf("%s has %d bytes, want at most %d: %v", file, packed.Size(), maxFixture, err)
	}
	checkUpgrade(t, folder)
}

// keepToken kills the server, has a token made, where the version has accounts, and kills it again.
func (s *server) keepToken(k *keptData) {
	s.t.Helper()
	s.kill()
	s.env = append(s.env, "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
	s.start()
	if answer := s.as(adminToken, "GET", "/v1/tokens", ""); answer.status == http.StatusOK {
		k.Token = s.token("viewer", access.Viewer)
	}
	s.kill()
}

// writeKept writes what was acknowledged into the folder of a fixture.
func writeKept(t *testing.T, folder, name string, kept any) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, name), string(text)+"\n")
}

func (s *server) keepTopics(k *keptData) {
	s.t.Helper()
	for _, name := range []string{"plain", "compressed", "ledger"} {
		s.newTopic(name, 1, "retention.ms", "-1")
	}
	s.newTopic("paid", -1, "sluice.view.of", "plain", "sluice.view.where", `headers.tag == "paid"`)
	plain := s.produceKept("plain", "open", "paid", "open", "paid")
	k.Topics = []keptTopic{
		{Name: "plain", Records: plain},
		{Name: "paid", View: true, Records: []keptRecord{plain[1], plain[3]}},
		{Name: "compressed", Records: s.keepCompressed()},
		{Name: "ledger", Records: s.keepTransactions()},
	}
	offsets := kadm.Offsets{}
	k.Committed = 2
	offsets.Add(kadm.Offset{Topic: "plain", At: k.Committed, LeaderEpoch: -1})
	if err := kadm.NewClient(s.connect()).CommitAllOffsets(s.t.Context(), "readers", offsets); err != nil {
		s.t.Fatal(err)
	}
	k.Due = s.keepDelayed()
	if s.shares() {
		k.Shared = s.keepShared()
	}
	if compacted := s.keepCompacted(); compacted != nil {
		k.Topics = append(k.Topics, *compacted)
	}
}

// produceKept appends a record for each tag, one at a time.
func (s *server) produceKept(topic string, tags ...string) (kept []keptRecord) {
	s.t.Helper()
	producer := s.connect(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for n, tag := range tags {
		record := &kgo.Record{Topic: topic, Key: fmt.Append(nil, n), Value: fmt.Appendf(nil, "%s %d", topic, n), Headers: []kgo.RecordHeader{{Key: "tag", Value: []byte(tag)}}}
		if err := producer.ProduceSync(s.t.Context(), record).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
		kept = append(kept, keptOf(record))
	}
	return kept
}

// keepCompressed appends a batch with each codec.
func (s *server) keepCompressed() (kept []keptRecord) {
	s.t.Helper()
	for n, codec := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		record := &kgo.Record{Topic: "compressed", Value: []byte(strings.Repeat(fmt.Sprint("batch ", n, " "), 50))}
		if err := s.connect(kgo.ProducerBatchCompression(codec)).ProduceSync(s.t.Context(), record).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
		kept = append(kept, keptOf(record))
	}
	return kept
}

// keepTransactions commits a transaction, aborts one and leaves one open, and returns the records of the first.
func (s *server) keepTransactions() (kept []keptRecord) {
	s.t.Helper()
	for _, end := range []string{"commit", "abort", "open"} {
		producer := s.connect(kgo.TransactionalID(end), kgo.TransactionTimeout(30*time.Second))
		records := []*kgo.Record{{Topic: "ledger", Value: []byte(end + " 0")}, {Topic: "ledger", Value: []byte(end + " 1")}}
		if err := producer.BeginTransaction(); err != nil {
			s.t.Fatal(err)
		}
		if err := producer.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
		if end == "open" {
			break
		}
		if err := producer.EndTransaction(s.t.Context(), end == "commit"); err != nil {
			s.t.Fatal(err)
		}
		if end == "commit" {
			kept = []keptRecord{keptOf(records[0]), keptOf(records[1])}
		}
	}
	return kept
}

// keepDelayed sends records that are due soon, cancels one, and returns the others.
func (s *server) keepDelayed() []string {
	s.t.Helper()
	s.newTopic("later", 1, "sluice.delay.enable", "true", "retention.ms", "-1")
	producer := s.connect()
	for _, delay := range []string{"30s", "32s", "31s"} {
		record := &kgo.Record{Topic: "later", Value: []byte("after " + delay), Headers: []kgo.RecordHeader{
			{Key: "sluice-delay", Value: []byte(delay)}, {Key: "sluice-id", Value: []byte(delay)},
		}}
		if err := producer.ProduceSync(s.t.Context(), record).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.call("DELETE", "/v1/topics/later/delayed/31s", "", http.StatusNoContent, nil)
	return []string{"after 30s", "after 32s"}
}

// shares reports whether the server has share groups.
func (s *server) shares() bool {
	s.t.Helper()
	versions, err := kadm.NewClient(s.connect()).ApiVersions(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, broker := range versions {
		if _, has := broker.KeyMaxVersion(int16(kmsg.ShareFetch)); has {
			return true
		}
	}
	return false
}

// keepShared has a share group acknowledge some records and hold others, and returns the values of all that it did
// not acknowledge.
func (s *server) keepShared() []string {
	s.t.Helper()
	s.newTopic("shared", 1, "retention.ms", "-1")
	s.configureGroup("workers", map[string]string{"share.auto.offset.reset": "earliest"})
	s.produceKept("shared", "a", "b", "c", "d", "e")
	member := s.shareMember()
	admin := kadm.NewClient(s.connect())
	until.Succeeds(s.t, "two records are acknowledged", func() error {
		for _, record := range pollAtLeast(s.t, member, 1) {
			status := kgo.AckRelease
			if record.Offset < 2 {
				status = kgo.AckAccept
			}
			record.Ack(status)
		}
		if err := member.FlushAcks(s.t.Context()); err != nil {
			return err
		}
		described, err := admin.DescribeShareGroupOffsets(s.t.Context(), "workers")
		if err != nil {
			return err
		}
		if at, _ := described["workers"].Offsets.Lookup("shared", 0); at.StartOffset != 2 {
			return fmt.Errorf("the group is at %d", at.StartOffset)
		}
		return nil
	})
	pollAtLeast(s.t, member, 1)
	return []string{"shared 2", "shared 3", "shared 4"}
}

// keepCompacted returns a topic that is compacted; nil if the server has none.
func (s *server) keepCompacted() *keptTopic {
	s.t.Helper()
	policy := "compact"
	if _, err := kadm.NewClient(s.connect()).CreateTopic(s.t.Context(), 1, 1, map[string]*string{"cleanup.policy": &policy}, "compacted"); err != nil {
		s.t.Logf("no compaction: %v", err)
		return nil
	}
	return &keptTopic{Name: "compacted", Records: s.produceKept("compacted", "a", "b")}
}

func keptOf(record *kgo.Record) keptRecord {
	kept := keptRecord{Offset: record.Offset, TimeMS: record.Timestamp.UnixMilli(), Key: string(record.Key), Value: string(record.Value)}
	for _, header := range record.Headers {
		if kept.Headers == nil {
			kept.Headers = map[string]string{}
		}
		kept.Headers[header.Key] = string(header.Value)
	}
	return kept
}

func (s *server) keepBulk(k *keptData) {
	s.t.Helper()
	for id, attempts := range map[string]int{"ended": 1, "half": 3} {
		s.call("POST", "/v1/actions", fmt.Sprintf(`{"id":%q,"tenant":"shop","type":%q,"max_attempts":%d,"aggregate":["count","sum:price"]}`, id, id, attempts), http.StatusCreated, nil)
		s.upload(id, ndjson, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", 0)
		s.call("POST", "/v1/actions/"+id+"/seal", `{"total":3}`, http.StatusOK, nil)
	}
	for n := range 3 {
		outcome := `"status":"succeeded","result":{"price":"1.5"}`
		if n == 2 {
			outcome = `"status":"failed","error":"no such mailbox"`
		}
		s.settle("ended", outcome)
	}
	ended := s.finish("ended")
	s.settle("half", `"status":"succeeded","result":{"price":"1.5"}`)
	s.await("half", 1, "")
	var streamed struct{ Action string }
	for _, n := range []string{"1", "2"} {
		s.call("POST", "/v1/jobs", `{"tenant":"shop","type":"streamed","payload":{"n":`+n+`}}`, http.StatusCreated, &streamed)
	}
	s.settle("streamed", `"status":"succeeded"`)
	k.Actions = []keptAction{
		{ID: "ended", Type: "ended", Succeeded: 2, Failed: 1, Error: "no such mailbox", Result: ended.Result},
		{ID: "half", Type: "half", Succeeded: 1, Left: []string{`{"n":2}`, `{"n":3}`}},
		{ID: streamed.Action, Type: "streamed", Succeeded: 1, Left: []string{`{"n":2}`}},
	}
	s.call("PUT", "/v1/schedules/yearly", `{"cron":"0 3 1 1 *","time_zone":"Asia/Seoul","tenant":"shop","type":"nobody","jobs":[{"n":1}],"catch_up_ms":0}`, http.StatusCreated, &k.Schedule)
}

// settle leases the next job of a type and settles it.
func (s *server) settle(kind, outcome string) {
	s.t.Helper()
	if verdict := s.ack(s.await(kind, 1, "")[0].Lease, outcome); verdict != "accepted" {
		s.t.Fatalf("%s: the verdict is %s", kind, verdict)
	}
}

func (s *server) keepRooms(k *keptData) {
	s.t.Helper()
	s.call("PUT", "/v1/rooms/shop", keptRoom(5*time.Second), http.StatusCreated, nil)
	for _, key := range []string{"alice", ""} {
		k.Over = append(k.Over, s.enter("shop", key, http.StatusCreated).Ticket)
	}
	s.call("POST", "/v1/rooms/shop/pause", "", http.StatusOK, nil)
	for _, key := range []string{"dora", "", ""} {
		k.Waiting = append(k.Waiting, s.enter("shop", key, http.StatusCreated))
	}
	until.True(s.t, "two have come in", func() bool { return s.room("shop").AdmittedTotal == 2 })
}

// keptRoom returns the settings of a room for two whose visits have a length, and in which visitors who wait may be silent for a day.
func keptRoom(visit time.Duration) string {
	return fmt.Sprintf(`{"mode":"teller","capacity":2,"pass_ttl_ms":%d,"pass":"fixed","claim_window_ms":600000,"abandon_after_ms":86400000,"grace_ms":86400000}`, visit.Milliseconds())
}
