package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// webNode is a node of a cluster in memory, with its API.
type webNode struct {
	store  *storetest.NodeStore
	broker *broker.Broker
	api    http.Handler
}

// startWebNodes starts three nodes.
func startWebNodes(t *testing.T) []*webNode {
	t.Helper()
	cluster := storetest.NewCluster(3)
	nodes := make([]*webNode, 3)
	for i := range nodes {
		store := cluster.Store(int32(i + 1))
		advertise := topic.Advertised{Host: "here", Port: 1, Listeners: map[string]string{"inside": "here:1", "public": ""}}
		broker, err := broker.New(store, topic.Config{Advertise: advertise, TotalPartitions: 100}, broker.WithQuotas(func(string) topic.Quota { return topic.Quota{Partitions: 50} }))
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
			defer cancel()
			if err := broker.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		nodes[i] = &webNode{store, broker, api.New(broker)}
	}
	return nodes
}

// remind makes a topic of three partitions, with a record in each that is due in so
// many hours as its partition has the number, and one more. All nodes know who leads them.
func remind(t *testing.T, nodes []*webNode) {
	t.Helper()
	until.True(t, "the nodes agree", func() bool { return len(nodes[0].broker.Nodes()) == 3 })
	made, err := nodes[0].broker.Create(t.Context(), topic.Spec{Name: "reminders", Partitions: 3, Replicas: 3, Settings: map[string]string{"sluice.delay.enable": "true"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for number := range int32(3) {
		var leader int32
		until.True(t, "the nodes agree", func() bool { leader = made.Partitions()[number].Leader(); return leader > 0 })
		batch, err := topic.NewBatch([]topic.Record{{
			Timestamp: time.Now().UnixMilli(), Value: []byte("call"), Headers: []topic.Header{
				{Key: "sluice-id", Value: fmt.Append(nil, "id-", number)}, {Key: "sluice-delay", Value: fmt.Append(nil, number+1, "h")},
			},
		}}, topic.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		until.True(t, "the nodes agree", func() bool {
			there, err := nodes[leader-1].broker.Topic("reminders")
			if err != nil {
				return false
			}
			a, err := there.Append(t.Context(), number, []topic.Batch{slices.Clone(batch)})
			if err == nil {
				_, _, err = a.Wait(t.Context())
			}
			return err == nil
		})
		for _, node := range nodes {
			until.True(t, "the nodes agree", func() bool {
				there, err := node.broker.Topic("reminders")
				return err == nil && there.Partitions()[number].Leader() == leader
			})
		}
	}
}

// ask makes a request to a node, and returns the status and the body.
func (n *webNode) ask(t *testing.T, method, path string, header ...string) (int, string) {
	t.Helper()
	request := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	n.api.ServeHTTP(answer, request)
	return answer.Code, answer.Body.String()
}

// list returns the ids that a node lists.
func (n *webNode) list(t *testing.T, query string, header ...string) string {
	t.Helper()
	status, body := n.ask(t, "GET", "/v1/topics/reminders/delayed"+query, header...)
	var list api.DelayedList
	if err := json.Unmarshal([]byte(body), &list); status != 200 || err != nil {
		t.Fatalf("%d %s", status, body)
	}
	var ids []string
	for _, record := range list.Delayed {
		ids = append(ids, record.ID)
	}
	return strings.Join(ids, " ")
}

// Any node knows the delayed records of all partitions: it asks those that lead
// them, and says which of them does not answer.
func TestDelayedOnAnyNode(t *testing.T) {
	nodes := startWebNodes(t)
	remind(t, nodes)
	const all = "id-0 id-1 id-2"
	for i, node := range nodes {
		until.True(t, "the nodes agree", func() bool { return node.list(t, "") == all })
		if got := node.list(t, "?limit=2"); got != "id-0 id-1" {
			t.Errorf("node %d: the first two are %s", i+1, got)
		}
		// The header by which nodes once forwarded requests is anybody's now.
		if got := node.list(t, "", "Sluice-Forwarded", "1"); got != all {
			t.Errorf("node %d: with the header of a node, it lists %s", i+1, got)
		}
	}
	for i, id := range []string{"id-0", "id-1", "id-2"} {
		other := nodes[(i+1)%3]
		if status, body := other.ask(t, "DELETE", "/v1/topics/reminders/delayed/"+id); status != 204 {
			t.Errorf("node %d: %d %s", (i+1)%3+1, status, body)
		}
		if status, body := other.ask(t, "DELETE", "/v1/topics/reminders/delayed/"+id); status != 404 || !strings.Contains(body, id) {
			t.Errorf("once more: %d %s", status, body)
		}
	}
	if got := nodes[0].list(t, ""); got != "" {
		t.Errorf("all are canceled, and there are %s", got)
	}
}

func TestDelayedWhereALeaderDoesNotAnswer(t *testing.T) {
	nodes := startWebNodes(t)
	remind(t, nodes)
	there, err := nodes[0].broker.Topic("reminders")
	if err != nil {
		t.Fatal(err)
	}
	away := there.Partitions()[1].Leader()
	if _, err := nodes[away-1].store.Answer(nil); err != nil {
		t.Fatal(err)
	}
	asked := nodes[away%3]
	for _, request := range [][2]string{{"GET", ""}, {"DELETE", "/nosuch"}} {
		status, body := asked.ask(t, request[0], "/v1/topics/reminders/delayed"+request[1])
		want := fmt.Sprintf("node %d, which leads partition", away)
		if status != 503 || !strings.Contains(body, api.CodeUnavailable) || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s\nwant %s", request[0], status, body, want)
		}
	}
}

// The API of a cluster tells what each node leads and keeps, and refuses what
// pages of other origins send.
func TestClusterOfThree(t *testing.T) {
	nodes := startWebNodes(t)
	remind(t, nodes)
	until.True(t, "the nodes agree", func() bool {
		_, body := nodes[1].ask(t, "GET", "/v1/cluster")
		var cluster api.Cluster
		if err := json.Unmarshal([]byte(body), &cluster); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		leads, replicas := 0, 0
		for _, node := range cluster.Nodes {
			leads, replicas = leads+node.Leads, replicas+node.Replicas
		}
		return cluster.Node == 2 && len(cluster.Nodes) == 3 && cluster.Partitions == 3 && leads == 3 && replicas == 9 && cluster.Leaderless == 0
	})
	if _, body := nodes[0].ask(t, "GET", "/v1/cluster"); !strings.Contains(body, `"kafka":"here:1","listeners":{"inside":"here:1","public":""}`) {
		t.Errorf("the listeners have names: %s", body)
	}
	for _, test := range []struct {
		method, path string
		header       []string
		status       int
		want         string
	}{
		{"POST", "/v1/cluster/nodes/9/drain", nil, 404, "node does not exist: 9"},
		{"POST", "/v1/cluster/nodes/0/drain", nil, 422, "id: "},
		{"POST", "/v1/cluster/nodes/1/drain", nil, 422, "invalid number of replicas"},
		{"POST", "/v1/cluster/nodes/1/resume", nil, 204, ""},
		{"DELETE", "/v1/cluster/nodes/1", nil, 409, "drain it first"},
		{"POST", "/v1/cluster/balance", nil, 200, `"moves":`},
		{"POST", "/v1/cluster/leaders?topic=nosuch", nil, 404, "nosuch"},
		{"POST", "/v1/cluster/leaders?topic=reminders", nil, 200, `"elected":`},
		{"POST", "/v1/cluster/balance", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin"},
		{"DELETE", "/v1/cluster/nodes/1", []string{"Origin", "https://elsewhere.example"}, 403, "cross_origin"},
		{"GET", "/v1/cluster/nosuch", nil, 404, "there is no GET /v1/cluster/nosuch"},
	} {
		if status, body := nodes[0].ask(t, test.method, test.path, test.header...); status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s %s: %d %s\nwant %d %s", test.method, test.path, status, body, test.status, test.want)
		}
	}
}

// The replicas and the partitions of a topic change by a PATCH.
func TestChangeTopic(t *testing.T) {
	nodes := startWebNodes(t)
	remind(t, nodes)
	for _, test := range []struct {
		body   string
		status int
		want   string
	}{
		{`{}`, 422, "want replicas or partitions"},
		{`{"replicas":4}`, 422, "invalid number of replicas"},
		{`{"replicas":6}`, 422, "replicas: "},
		{`{"partitions":4,"grace_ms":5}`, 422, "grace_ms: it is for fewer partitions"},
		{`{"partitions":4}`, 204, ""},
		{`{"partitions":200}`, 409, "topic.total_partitions"},
		{`{"partitions":60}`, 429, "max_partitions, 50"},
		{`{"partitions":2,"grace_ms":3600000}`, 204, ""},
		{`{"partitions":3}`, 422, "partitions"},
		{`{"replicas":1}`, 204, ""},
	} {
		request := httptest.NewRequest(http.MethodPatch, "/v1/topics/reminders", strings.NewReader(test.body))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		nodes[2].api.ServeHTTP(answer, request)
		if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.want) {
			t.Errorf("%s: %d %s\nwant %d %s", test.body, answer.Code, answer.Body, test.status, test.want)
		}
	}
}
