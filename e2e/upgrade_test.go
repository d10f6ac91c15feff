package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// upgrades has a folder for each earlier version: its data directory after a SIGKILL, and what it had
// acknowledged. "make fixture" makes them.
const upgrades = "testdata/upgrade"

// forEver are the arguments of a server that keeps what a fixture has, however old it is.
var forEver = []string{"--bulk-retention", "87600h", "--topic-offset-retention", "87600h"}

// keptData is what a server of an earlier version acknowledged. The fields of things that the version did not have are empty.
type keptData struct {
	Actions  []keptAction `json:"actions"`
	Schedule schedule     `json:"schedule"`
	// Over are the tickets of visitors in the room shop whose visits have ended since, and Waiting those
	// of visitors who wait, in their order. The room is paused.
	Over    []string  `json:"over"`
	Waiting []visitor `json:"waiting"`

	Topics []keptTopic `json:"topics"`
	// Committed is the offset of the group readers in partition 0 of the topic plain.
	Committed int64 `json:"committed"`
	// Due are delayed records of the topic later that are due since, in that order. One between them was canceled.
	Due []string `json:"due"`
	// Shared are the values in the topic shared that the share group workers has not acknowledged, of more.
	Shared []string `json:"shared,omitempty"`
	// Token is the secret of a viewer's token.
	Token string `json:"token,omitempty"`
}

// keptAction is an action whose jobs have its ID as their type.
type keptAction struct {
	ID        string                     `json:"id"`
	Succeeded int64                      `json:"succeeded"`
	Failed    int64                      `json:"failed"`
	Error     string                     `json:"error,omitempty"` // of the failed jobs
	Result    map[string]json.RawMessage `json:"result,omitempty"`
	// Type is that of the jobs, and Left the payloads of those that have not ended.
	Type string   `json:"type"`
	Left []string `json:"left,omitempty"`
}

type schedule struct {
	Cron   string           `json:"cron"`
	Zone   string           `json:"time_zone"`
	Tenant string           `json:"tenant"`
	Jobs   []map[string]int `json:"jobs"`
}

// keptTopic is a topic of one partition, with the records that a reader of committed records gets.
type keptTopic struct {
	Name    string       `json:"name"`
	View    bool         `json:"view,omitempty"` // of the topic plain
	Records []keptRecord `json:"records"`
}

type keptRecord struct {
	Offset  int64             `json:"offset"`
	TimeMS  int64             `json:"time_ms"`
	Key     string            `json:"key,omitempty"`
	Value   string            `json:"value"`
	Headers map[string]string `json:"headers,omitempty"`
}

// This version opens the data directory of each earlier one as a SIGKILL left it. Everything acknowledged is there,
// unfinished work goes on, and a second start finds what the first one did.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	eachUpgrade(t, checkUpgrade)
}

// eachUpgrade calls check for the fixtures of each earlier version, in parallel.
func eachUpgrade(t *testing.T, check func(t *testing.T, folder string)) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(upgrades, "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no fixture in %s: %v", upgrades, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			check(t, folder)
		})
	}
}

// checkUpgrade opens a fixture with this version.
func checkUpgrade(t *testing.T, folder string) {
	t.Helper()
	s := newServer(t, forEver...)
	if out, err := exec.CommandContext(t.Context(), "tar", "-x", "-z", "-f", filepath.Join(folder, "data.tar.gz"), "-C", s.data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(folder, "kept.json"))
	if err != nil {
		t.Fatal(err)
	}
	var k keptData
	if err := json.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.checkKeptRooms(&k)
	s.checkKeptBulk(&k)
	s.checkKeptTopics(&k)
	s.terminate()
	sluice(t, "doctor", "--data", s.data)
	s.checkSecondStart(&k)
}

func (s *server) checkKeptBulk(k *keptData) {
	s.t.Helper()
	for _, want := range k.Actions {
		got := s.action(want.ID)
		if left := int64(len(want.Left)); got.Succeeded != want.Succeeded || got.Failed != want.Failed || got.Received-got.Succeeded-got.Failed != left {
			s.t.Errorf("%+v, want %d succeeded, %d failed and %d left", got, want.Succeeded, want.Failed, left)
		}
		var done []string
		for len(done) < len(want.Left) {
			for _, job := range s.await(want.Type, len(want.Left), "") {
				if s.ack(job.Lease, `"status":"succeeded","result":{"n":1}`) == "accepted" { // a lease may have ended on a busy machine
					done = append(done, string(job.Payload))
				}
			}
		}
		slices.Sort(done)
		equal(s.t, want.ID+": its jobs", done, want.Left)
		want.checkSettled(s)
	}
	var got schedule
	s.call("GET", "/v1/schedules/yearly", "", http.StatusOK, &got)
	equal(s.t, "the schedule", got, k.Schedule)
	s.call("POST", "/v1/schedules/yearly/run", "", http.StatusCreated, nil)
}

// checkSettled checks an action all of whose jobs have ended.
func (a *keptAction) checkSettled(s *server) {
	s.t.Helper()
	until.Succeeds(s.t, a.ID+" has counted all", func() error {
		got := s.action(a.ID)
		if got.Succeeded != a.Succeeded+int64(len(a.Left)) || got.Failed != a.Failed {
			return fmt.Errorf("%+v, want %d succeeded and %d failed", got, a.Succeeded+int64(len(a.Left)), a.Failed)
		}
		for name, want := range a.Result {
			if string(got.Result[name]) != string(want) {
				return fmt.Errorf("%s is %s, want %s", name, got.Result[name], want)
			}
		}
		return nil
	})
	if a.Error != "" {
		answer, err := s.do("GET", "/v1/actions/"+a.ID+"/failures", "", nil, "Accept", "text/csv")
		if err != nil || !strings.Contains(string(answer.body), a.Error) {
			s.t.Errorf("failures of %s are %s, want %s: %v", a.ID, answer.body, a.Error, err)
		}
	}
}

func (s *server) checkKeptRooms(k *keptData) {
	s.t.Helper()
	if got := s.room("shop"); got.State != "paused" || got.Waiting != int64(len(k.Waiting)) || got.AdmittedTotal != int64(len(k.Over)) {
		s.t.Errorf("the room is %+v, want it paused with %d who wait, and %d admitted", got, len(k.Waiting), len(k.Over))
	}
	for _, want := range k.Waiting {
		if got := s.ask("shop", want.Ticket); got.ID != want.ID || got.Status != want.Status || got.position() != want.position() {
			s.t.Errorf("visitor %d is %d, %s, at position %d; want %s at %d", want.ID, got.ID, got.Status, got.position(), want.Status, want.position())
		}
	}
	for _, ticket := range k.Over {
		until.True(s.t, "the visit is over", func() bool { return s.me("GET", "shop", ticket).status == http.StatusGone })
	}
	s.call("PUT", "/v1/rooms/shop", keptRoom(time.Hour), http.StatusOK, nil)
	s.call("POST", "/v1/rooms/shop/resume", "", http.StatusOK, nil)
	until.True(s.t, "the first who wait are let in", func() bool {
		return s.ask("shop", k.Waiting[0].Ticket).Status == "inside" && s.ask("shop", k.Waiting[1].Ticket).Status == "inside"
	})
	if last := s.ask("shop", k.Waiting[2].Ticket); last.position() != 1 {
		s.t.Errorf("the last is %+v, want it to wait at position 1", last)
	}
}

func (s *server) checkKeptTopics(k *keptData) {
	s.t.Helper()
	producer := s.connect()
	for _, kept := range k.Topics {
		if !kept.View {
			if err := producer.ProduceSync(s.t.Context(), after(kept.Name)).FirstErr(); err != nil {
				s.t.Fatalf("append to %s: %v", kept.Name, err)
			}
		}
	}
	for _, kept := range k.Topics {
		got := s.readCommitted(kept.Name, len(kept.Records)+1)
		equal(s.t, kept.Name, got[:len(kept.Records)], kept.Records)
		if last := got[len(kept.Records)]; last.Value != string(after("").Value) {
			s.t.Errorf("%s goes on with %+v", kept.Name, last)
		}
	}
	offsets, err := kadm.NewClient(producer).FetchOffsets(s.t.Context(), "readers")
	if at, _ := offsets.Lookup("plain", 0); err != nil || at.At != k.Committed {
		s.t.Errorf("the group has committed %d, want %d: %v", at.At, k.Committed, err)
	}
	var due []string
	for _, record := range s.readCommitted("later", len(k.Due)) {
		due = append(due, record.Value)
	}
	equal(s.t, "the records that were due", due, k.Due)
	if k.Shared != nil {
		var rest []string
		for member := s.shareMember(); len(rest) < len(k.Shared); {
			for _, record := range pollAtLeast(s.t, member, 1) {
				record.Ack(kgo.AckAccept)
				rest = append(rest, string(record.Value))
			}
		}
		slices.Sort(rest)
		equal(s.t, "what the share group had not acknowledged", rest, k.Shared)
	}
}

// checkSecondStart starts the server again, with accounts if the earlier version had them.
func (s *server) checkSecondStart(k *keptData) {
	s.t.Helper()
	s.start()
	for _, action := range k.Actions {
		action.checkSettled(s)
	}
	for _, kept := range k.Topics {
		equal(s.t, kept.Name, s.readCommitted(kept.Name, len(kept.Records)+1)[:len(kept.Records)], kept.Records)
	}
	if last := s.ask("shop", k.Waiting[2].Ticket); last.position() != 1 {
		s.t.Errorf("the last is %+v, want it to wait at position 1", last)
	}
	if k.Token == "" {
		return
	}
	s.terminate()
	s.env = append(s.env, "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
	s.start()
	if read, write := s.as(k.Token, "GET", "/v1/rooms", ""), s.as(k.Token, "POST", "/v1/rooms/shop/pause", ""); read.status != http.StatusOK || write.status != http.StatusForbidden {
		s.t.Errorf("a viewer's token reads with %d and writes with %d", read.status, write.status)
	}
}

// after is a record that is appended to a topic after the upgrade.
func after(topic string) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte("after"), Value: []byte("after the upgrade"), Headers: []kgo.RecordHeader{{Key: "tag", Value: []byte("paid")}}}
}

// readCommitted returns the first records of the partition of a topic, without those of aborted transactions.
func (s *server) readCommitted(name string, count int) (records []keptRecord) {
	s.t.Helper()
	client := s.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().At(0)}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer client.Close()
	for _, got := range pollAtLeast(s.t, client, count) {
		records = append(records, keptOf(got))
	}
	return records
}

// shareMember returns a member of the share group workers of the topic shared.
func (s *server) shareMember() *kgo.Client {
	s.t.Helper()
	return s.connect(kgo.ShareGroup("workers"), kgo.ConsumeTopics("shared"), kgo.ShareMaxRecords(2), kgo.ShareMaxRecordsStrict())
}
