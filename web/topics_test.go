package web

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// newBroker returns a broker that runs, on a store in memory, until the test ends.
func newBroker(t *testing.T) *broker.Broker {
	t.Helper()
	b, err := broker.New(storetest.NewMemory(), topic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

func create(t *testing.T, b *broker.Broker, name string, partitions int32) *broker.Topic {
	t.Helper()
	made, err := b.Create(t.Context(), topic.Spec{Name: name, Partitions: partitions}, false)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func appendTo(t *testing.T, to *broker.Topic, records ...topic.Record) {
	t.Helper()
	for i := range records {
		records[i].Offset = int64(i)
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	appending, err := to.Append(t.Context(), 0, []topic.Batch{batch})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := appending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTopicsArePagedAndFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		for i := range 120 {
			create(t, b, fmt.Sprintf("topic-%03d", i), 1)
		}
		appendTo(t, create(t, b, "orders", 3), topic.Record{Value: []byte("x")}, topic.Record{Value: []byte("y")})
		d := newTest(t, Options{Topics: b})
		for query, want := range map[string]int{"": 50, "?after=topic-048": 50, "?after=topic-098": 21, "?find=orders": 1, "?find=none": 0} {
			page := ask(d, "GET", "/ui/topics"+query, "").Body.String()
			if got := strings.Count(page, `href="/ui/topics/topic?`); got != want {
				t.Errorf("%q: %d topics, want %d", query, got, want)
			}
		}
		says(t, text(t, d, "/ui/topics?find=orders"), "orders 3 0 2")
		says(t, text(t, d, "/ui/topics/topic?name=orders"), "0 1 1 0 2 2", "retention.ms 604800000 default")
		if w := ask(d, "GET", "/ui/topics/topic?name=none", ""); w.Code != http.StatusNotFound {
			t.Errorf("a topic that does not exist: %d", w.Code)
		}
	})
}

func TestRecordsFromAnOffsetOrATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		orders := create(t, b, "orders", 1)
		began := time.Now().Add(-3 * time.Hour)
		for i := range 130 {
			appendTo(t, orders, topic.Record{Timestamp: began.Add(time.Duration(i) * time.Minute).UnixMilli(), Value: fmt.Appendf(nil, "order %d.", i)})
		}
		d := newTest(t, Options{Topics: b})
		for _, test := range []struct {
			query       string
			first, last int
		}{
			{"", 80, 129},
			{"&offset=0", 0, 49},
			{"&offset=100", 100, 129},
			{"&offset=-5", 0, 49},
			{"&time=" + began.Add(70*time.Minute).UTC().Format("2006-01-02T15:04"), 70, 119},
		} {
			page := text(t, d, "/ui/topics/records?name=orders&partition=0"+test.query)
			says(t, page, fmt.Sprintf(" order %d.", test.first), fmt.Sprintf(" order %d.", test.last), "offsets 0 to 130")
			if n := strings.Count(page, " order "); n != test.last-test.first+1 {
				t.Errorf("%q shows %d records", test.query, n)
			}
		}
		says(t, text(t, d, "/ui/topics/records?name=orders&offset=1000"), "No records here.")
		for query, want := range map[string]int{"&partition=7": 404, "&partition=x": 404, "&offset=x": 400, "&time=noon": 400} {
			if w := ask(d, "GET", "/ui/topics/records?name=orders"+query, ""); w.Code != want {
				t.Errorf("%q: %d, want %d", query, w.Code, want)
			}
		}
	})
}

// The records that are due next are listed with their time, as many as fit a page.
func TestDelayedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		reminders, err := b.Create(t.Context(), topic.Spec{Name: "reminders", Partitions: 1, Settings: map[string]string{"sluice.delay.enable": "true"}}, false)
		if err != nil {
			t.Fatal(err)
		}
		create(t, b, "orders", 1)
		header := func(name, value string) topic.Header { return topic.Header{Key: name, Value: []byte(value)} }
		for i := range 60 {
			id := fmt.Sprintf("<call-%02d>", i)
			appendTo(t, reminders, topic.Record{Timestamp: time.Now().UnixMilli(), Headers: []topic.Header{header("sluice-id", id), header("sluice-delay", fmt.Sprintf("%dm", 200-i))}})
		}
		d := newTest(t, Options{Topics: b})
		page := text(t, d, "/ui/topics/delayed?name=reminders")
		says(t, page, "<call-59> 0 in 2 h", "<call-10> 0 in 3 h", "More records wait")
		if strings.Contains(page, "<call-09>") || strings.Index(page, "<call-59>") > strings.Index(page, "<call-58>") {
			t.Errorf("the 50 that are due next are not shown, or not in their order:\n%s", page)
		}
		if !strings.Contains(text(t, d, "/ui/topics/topic?name=reminders"), "Delayed records") || strings.Contains(text(t, d, "/ui/topics/topic?name=orders"), "Delayed records") {
			t.Error("not those topics that delay records have a link to them")
		}
		says(t, text(t, d, "/ui/topics/delayed?name=orders"), "No record waits.")
		if w := ask(d, "GET", "/ui/topics/delayed?name=none", ""); w.Code != http.StatusNotFound {
			t.Errorf("a topic that does not exist: %d", w.Code)
		}
	})
}

// A filter looks from the first offset on, as far as a page reads, and goes on where it has stopped.
func TestRecordsByKeyAndText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		orders := create(t, b, "orders", 1)
		long := strings.Repeat("x", 64<<10)
		for i := range 100 {
			appendTo(t, orders, topic.Record{Key: fmt.Appendf(nil, "key-%d", i%10), Value: fmt.Appendf(nil, "order %d. %s", i, long),
				Headers: []topic.Header{{Key: "region", Value: fmt.Appendf(nil, "zone<%d>", i%4)}}})
		}
		d := newTest(t, Options{Topics: b})
		found := func(query string) (orders []string, next string) {
			page := ask(d, "GET", "/ui/topics/records?name=orders&partition=0"+query, "").Body.String()
			for _, match := range regexp.MustCompile(`order (\d+)\. x`).FindAllStringSubmatch(page, -1) {
				orders = append(orders, match[1])
			}
			if link := regexp.MustCompile(`href="([^"]*)">Newer<`).FindStringSubmatch(page); link != nil {
				next = strings.TrimPrefix(html.UnescapeString(link[1]), "/ui/topics/records?name=orders&partition=0")
			}
			return orders, next
		}
		for query, want := range map[string]string{
			"&key=key-7": "7 17 27 37 47 57 67 77 87 97", "&key=key": "", "&find=order+42.": "42", "&find=zone%3C3%3E&key=key-1": "11 31 51 71 91",
			"&key=key-7&offset=60": "67 77 87 97", "&find=key-10": "",
		} {
			var all []string
			pages := 0
			for next := query; next != ""; pages++ {
				var orders []string
				orders, next = found(next)
				all = append(all, orders...)
			}
			if got := strings.Join(all, " "); got != want {
				t.Errorf("%q finds %q in %d pages, want %q", query, got, pages, want)
			}
			if pages < 2 && !strings.Contains(query, "offset") {
				t.Errorf("%q reads %d pages: all 6 MiB at once", query, pages)
			}
		}
		says(t, text(t, d, "/ui/topics/records?name=orders&partition=0&key=key-7"), "offsets 0 to 100; looked at offsets 0 to ")
	})
}

func TestRecordsAreShownAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		orders := create(t, b, "orders", 1)
		long := strings.Repeat("한", shownBytes)
		headers := make([]topic.Header, maxHeaders+3)
		headers[0] = topic.Header{Key: hostile, Value: []byte{0xff}}
		appendTo(t, orders, topic.Record{Key: []byte(hostile), Value: []byte(long), Headers: headers}, topic.Record{Key: []byte{}, Value: []byte{0, 1, 2}}, topic.Record{})
		d := newTest(t, Options{Topics: b})
		page := text(t, d, "/ui/topics/records?name=orders&partition=0")
		says(t, page, hostile, "AAEC base64", "none none", "/w== base64", "3 more", strings.Repeat("한", shownBytes/3)+" 4.0 KiB more")
		raw := ask(d, "GET", "/ui/topics/records?name=orders&partition=0", "").Body.String()
		if strings.Contains(raw, "<b onload") || strings.Contains(raw, "\x00") {
			t.Error("a record is markup, or binary")
		}
	})
}

// A tail has the newest records of all partitions, the newest first.
func TestTailOfATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		orders := create(t, b, "orders", 2)
		began := time.Now()
		for i := range 60 {
			appendTo(t, orders, topic.Record{Value: fmt.Appendf(nil, "first %d.", i), Timestamp: began.Add(time.Duration(i) * time.Minute).UnixMilli()})
		}
		batch, err := topic.NewBatch([]topic.Record{{Value: []byte(hostile), Timestamp: began.Add(58*time.Minute + time.Second).UnixMilli()}}, topic.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		appending, err := orders.Append(t.Context(), 1, []topic.Batch{batch})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := appending.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := newTest(t, Options{Topics: b})
		says(t, text(t, d, "/ui/topics/topic?name=orders"), "Newest records, live")
		page := text(t, d, "/ui/topics/tail?name=orders")
		last, other, before := strings.Index(page, "first 59."), strings.Index(page, hostile), strings.Index(page, "first 58.")
		if last < 0 || other < last || before < other || strings.Count(page, "first ") != 25 || strings.Contains(page, "first 34.") {
			t.Errorf("not the newest records, the newest first: %s", page)
		}
		if !strings.Contains(ask(d, "GET", "/ui/topics/tail?name=orders", "").Body.String(), "data-live") {
			t.Error("the tail is not live")
		}
		if w := ask(d, "GET", "/ui/topics/tail?name=none", ""); w.Code != http.StatusNotFound {
			t.Errorf("a topic that does not exist: %d", w.Code)
		}
	})
}

func TestGroupsShowTheirLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		orders := create(t, b, "orders", 1)
		for range 10 {
			appendTo(t, orders, topic.Record{Value: []byte("x")})
		}
		commit := b.Groups().Commit(group.CommitRequest{
			MemberIdentity: group.MemberIdentity{Group: hostile, Generation: -1}, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 4}},
		})
		if _, err := commit.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		metrics := newFixture()
		metrics.lag.WithLabelValues(hostile, "orders", "0").Set(6)
		d := newTest(t, Options{Topics: b, Metrics: metrics.registry})
		metrics.lag.WithLabelValues("other", "orders", "0").Set(2)
		metrics.lag.WithLabelValues("other", "orders", "1").Set(3)
		metrics.lag.WithLabelValues("other", "elsewhere", "0").Set(100)
		says(t, text(t, d, "/ui/topics"), "orders 1 0 10 690 B 2 6")
		says(t, text(t, d, "/ui/topics/groups"), hostile+" empty 0 6")
		says(t, text(t, d, groupPath(hostile)), "orders 0 4 10 6")
		if w := ask(d, "GET", groupPath("none"), ""); w.Code != http.StatusNotFound {
			t.Errorf("a group that does not exist: %d", w.Code)
		}
	})
}

// A reset shows where the group would go on, and then does that. It is refused while the group has members.
func TestGroupReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		orders := create(t, b, "orders", 2)
		began := time.Now()
		for i := range 10 {
			appendTo(t, orders, topic.Record{Value: []byte("x"), Timestamp: began.Add(time.Duration(i) * time.Minute).UnixMilli()})
		}
		groups := b.Groups()
		commit := groups.Commit(group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: hostile, Generation: -1}, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 4}}})
		if _, err := commit.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := newTest(t, Options{Topics: b})
		says(t, text(t, d, groupPath(hostile)), "Go on at", "orders")
		name := url.QueryEscape(hostile)
		says(t, text(t, d, "/ui/topics/reset?name="+name+"&topic=orders&to=end"), "0 4 10 0 6 1 – 0 – –", "0 records are read again, and 6 are skipped")
		for place, want := range map[string]struct {
			row   string
			value string
			then  int64
		}{
			"to=start": {"0 4 0 4 0", "start orders", 0},
			"to=end":   {"0 4 10 0 6", "end orders", 10},
			"to=time&time=" + began.UTC().Add(7*time.Minute).Format("2006-01-02T15:04"): {
				"0 4 7 0 3", began.UTC().Add(7*time.Minute).Format("2006-01-02T15:04") + " orders", 7},
			"to=time&time=2200-01-01T00:00": {"0 4 10 0 6", "2200-01-01T00:00 orders", 10},
		} {
			page := text(t, d, "/ui/topics/reset?name="+name+"&topic=orders&"+place)
			says(t, page, "Group "+hostile+" goes on elsewhere in topic orders", want.row)
			if at, err := groups.Offsets(hostile); err != nil || at["orders"][0].Offset != 4 {
				t.Fatalf("the preview has moved the group: %v %v", at, err)
			}
			form := url.Values{"do": {"reset_group"}, "name": {hostile}, "value": {want.value}}.Encode()
			if w := ask(d, "POST", "/ui/act", form); w.Code != http.StatusSeeOther {
				t.Fatalf("%s: %d %s", place, w.Code, w.Body)
			}
			if at, err := groups.Offsets(hostile); err != nil || at["orders"][0].Offset != want.then {
				t.Errorf("%s: %v %v, want offset %d", place, at, err, want.then)
			}
			if _, err := groups.Commit(group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: hostile, Generation: -1}, Offsets: []group.OffsetCommit{{Topic: "orders", Offset: 4}}}).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for query, want := range map[string]int{"topic=none&to=end": 404, "topic=orders&to=time&time=noon": 400, "topic=orders&to=": 400} {
			if w := ask(d, "GET", "/ui/topics/reset?name="+name+"&"+query, ""); w.Code != want {
				t.Errorf("%q: %d, want %d", query, w.Code, want)
			}
		}
		groups.Join(group.JoinRequest{Group: "busy", Session: 10 * time.Second, Rebalance: 10 * time.Second, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range"}}})
		if w := ask(d, "GET", "/ui/topics/reset?name=busy&topic=orders&to=end", ""); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "stop them first") {
			t.Errorf("a group with members: %d %s", w.Code, w.Body)
		}
		if w := ask(d, "POST", "/ui/act", "do=reset_group&name=busy&value=end+orders"); w.Code != http.StatusConflict {
			t.Errorf("a group with members is reset: %d", w.Code)
		}
	})
}

// nodesOf is a broker with other nodes, that records what is drained.
type nodesOf struct {
	*broker.Broker
	nodes   []topic.Node
	drained []string
	err     error
}

func (n *nodesOf) Nodes() []topic.Node { return n.nodes }

func (n *nodesOf) Drain(_ context.Context, node int32, drain bool) (int, error) {
	n.drained = append(n.drained, fmt.Sprint(node, " ", drain))
	return 0, n.err
}

func TestNodesAreDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		create(t, b, "orders", 3)
		n := &nodesOf{Broker: b, nodes: []topic.Node{{ID: b.Node(), Alive: true, Advertised: topic.Advertised{
			Host: "10.0.0.1", Port: 9092, Listeners: map[string]string{"public": "", "internal": "10.0.0.1:9092"},
		}}, {ID: 7, Draining: true, Advertised: topic.Advertised{Host: "10.0.0.7", Port: 9092}}}}
		d := newTest(t, Options{Topics: n})
		says(t, text(t, d, "/ui/cluster"), "alive this server internal 10.0.0.1:9092 public auto 3 3 0 Drain", "does not answer draining 10.0.0.7:9092 0 0 0 End draining")
		here := fmt.Sprint(b.Node())
		says(t, text(t, d, "/ui/act?do=drain_node&name="+here), "Node "+here+" gives its 3 replicas to other nodes, the 3 included that it leads")
		says(t, text(t, d, "/ui/act?do=resume_node&name=7"), "Node 7 may get replicas again")
		if len(n.drained) > 0 {
			t.Errorf("asking has drained %v", n.drained)
		}
		ask(d, "POST", "/ui/act", "do=drain_node&name="+here)
		ask(d, "POST", "/ui/act", "do=resume_node&name=7")
		if got := strings.Join(n.drained, ", "); got != here+" true, 7 false" {
			t.Errorf("drained %s", got)
		}
		if w := ask(d, "POST", "/ui/act", "do=drain_node&name=9"); w.Code != http.StatusNotFound || len(n.drained) != 2 {
			t.Errorf("a node that does not exist: %d", w.Code)
		}
		n.err = topic.ErrNodeInUse
		if w := ask(d, "POST", "/ui/act", "do=drain_node&name=7"); w.Code != http.StatusConflict {
			t.Errorf("a node that cannot be drained: %d", w.Code)
		}
	})
}

func TestClusterShowsItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		create(t, b, "orders", 3)
		d := newTest(t, Options{Topics: b})
		says(t, text(t, d, "/ui/cluster"), "Partitions 3 Without a leader 0", "1 alive this server", "3 3 0")
	})
}
