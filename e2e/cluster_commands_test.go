package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// From the moment when one node of three dies, the commands show the state that the other nodes
// know, and their changes succeed.
func TestCommandsWithADeadNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 3)
	by, dead := c.all[0], c.all[2]
	sluice := func(stdin string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), binary, args...)
		command.Env = append(command.Environ(), "SLUICE_SERVER="+by.url(""), "SLUICE_BROKERS="+strings.Join(c.brokers(), ","))
		command.Stdin = strings.NewReader(stdin)
		began := time.Now()
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("sluice %s, after %v: %v\n%s", strings.Join(args, " "), time.Since(began), err, out)
		}
		return string(out)
	}
	sluice("", "topic", "create", "orders", "--partitions", "6", "--replicas", "3")
	produce := func(from, to int) {
		t.Helper()
		var lines []string
		for _, number := range numbers(from, to) {
			lines = append(lines, number+":"+number)
		}
		sluice(input(lines), "topic", "produce", "orders", "--key-separator", ":")
	}
	produce(0, 600)
	consume := []string{"topic", "consume", "orders", "--until-end", "--format", "%v\\n"}
	for group := range 6 { // the dead node coordinates some of the groups
		sluice("", append(consume, "--group", fmt.Sprint("group", group))...)
	}
	checkSpread(t, by)
	resetByDashboards(t, c)

	if p := by.refuses("POST", "/v1/backup", "", "", http.StatusConflict); !strings.Contains(p.Detail, "replicas") {
		t.Errorf("a node refuses a backup with %q", p.Detail)
	}
	dead.kill()
	groups := sluice("", "group", "list")
	for group := range 6 {
		if name := fmt.Sprint("group", group); !strings.Contains(groups, name) {
			t.Errorf("group list has no %s:\n%s", name, groups)
		}
		if described := sluice("", "group", "describe", fmt.Sprint("group", group), "--json"); !strings.Contains(described, `"lag":0,`) {
			t.Errorf("group describe: %s", described)
		}
	}
	if described := sluice("", "topic", "describe", "orders", "--json"); strings.Contains(described, `"error"`) || strings.Contains(described, `"leader":-1`) || strings.Contains(described, `"records":0`) || strings.Contains(described, `"bytes":0`) {
		t.Errorf("topic describe: %s", described)
	}
	if topics := sluice("", "topic", "list"); !strings.Contains(topics, " 600 ") {
		t.Errorf("topic list: %s", topics)
	}
	produce(600, 900)
	got := strings.Fields(sluice("", consume...))
	slices.Sort(got)
	want := numbers(0, 900)
	slices.Sort(want)
	equal(t, "read", got, want)
	changeWithADeadNode(t, sluice, consume)
}

// resetByDashboards moves a group by the dashboard of each node: to the start, as its preview says, and back to the end.
func resetByDashboards(t *testing.T, c *nodes) {
	t.Helper()
	for i, node := range c.all {
		name := fmt.Sprint("group", i)
		for _, move := range []struct{ to, preview, lag string }{
			{"start", "600 records are read again", `"lag":600,"members"`}, {"end", "600 are skipped", `"lag":0,"members"`},
		} {
			until.True(t, "the dashboard previews "+move.to, func() bool {
				a, err := node.do("GET", "/ui/topics/reset?name="+name+"&topic=orders&to="+move.to, "", nil)
				return err == nil && a.status == http.StatusOK && strings.Contains(string(a.body), move.preview)
			})
			form := url.Values{"do": {"reset_group"}, "name": {name}, "value": {move.to + " orders"}}.Encode()
			until.True(t, "the dashboard resets to the "+move.to, func() bool {
				a, err := node.do("POST", "/ui/act", "application/x-www-form-urlencoded", []byte(form))
				return err == nil && a.status == http.StatusOK
			})
			if described := c.sluice(node, "group", "describe", name, "--json"); !strings.Contains(described, move.lag) {
				t.Errorf("node %d has moved %s to the %s: %s", i+1, name, move.to, described)
			}
		}
	}
}

// checkSpread waits until the last node leads partitions, and logs leaders and coordinators.
func checkSpread(t *testing.T, s *server) {
	t.Helper()
	var led, coordinated []int32
	admin := kadm.NewClient(s.connect())
	until.True(t, "node 3 leads partitions", func() bool { // at first another node may have been elected
		listed, err := admin.ListTopics(t.Context(), "orders")
		led = nil
		for _, p := range listed["orders"].Partitions {
			led = append(led, p.Leader)
		}
		return err == nil && slices.Contains(led, 3)
	})
	for _, found := range admin.FindGroupCoordinators(t.Context(), "group0", "group1", "group2", "group3", "group4", "group5") {
		coordinated = append(coordinated, found.NodeID)
	}
	t.Logf("partitions are led by %v, and groups are coordinated by %v", led, coordinated)
}

// changeWithADeadNode changes topics and groups.
func changeWithADeadNode(t *testing.T, sluice func(stdin string, args ...string) string, consume []string) {
	t.Helper()
	sluice("", "group", "reset", "group0", "--topic", "orders", "--to", "start")
	equal(t, "read again", len(strings.Fields(sluice("", append(consume, "--group", "group0")...))), 900)
	sluice("", "topic", "alter", "orders", "--set", "retention.ms=7200000")
	sluice("", "topic", "alter", "orders", "--partitions", "8")
	sluice("", "topic", "create", "later", "--partitions", "3", "--replicas", "3")
	sluice("x\n", "topic", "produce", "later")
	sluice("", "topic", "delete", "later")
	sluice("", "group", "delete", "group1")
	sluice("", "cluster", "show")
	if groups := sluice("", "group", "list"); strings.Contains(groups, "group1") {
		t.Errorf("group1 was deleted: %s", groups)
	}
}
