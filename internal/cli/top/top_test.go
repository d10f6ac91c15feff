package top

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/cli/clitest"
)

// earlier and later are the metrics of a server, and of the same two seconds later.
const (
	earlier = `process_start_time_seconds 1000
process_cpu_seconds_total 5
process_resident_memory_bytes 1048576
edge_connections_open 3
process_open_fds 7
process_max_fds 1024
bulk_action_jobs_total{outcome="succeeded",tenant="acme"} 100
bulk_action_jobs_total{outcome="succeeded",tenant="restarted"} 5000
bulk_action_attempts_total{outcome="succeeded",type="echo"} 100
room_entered_total{room="shop"} 10
room_admitted_total{room="shop"} 4
room_waiting{room="shop"} 6
room_inside{room="shop"} 4
topic_partition_start_offset{partition="0",topic="orders"} 40
topic_partition_end_offset{partition="0",topic="orders"} 100
topic_partition_start_offset{partition="1",topic="orders"} 0
topic_partition_end_offset{partition="1",topic="orders"} 50
topic_partition_bytes{partition="0",topic="orders"} 1000
topic_partition_bytes{partition="1",topic="orders"} 24
topic_group_lag{group="billing",partition="0",topic="orders"} 30
`
	later = `process_start_time_seconds 1000
process_cpu_seconds_total 8
process_resident_memory_bytes 2097152
edge_connections_open 4
process_open_fds 8
process_max_fds 1024
bulk_action_jobs_total{outcome="succeeded",tenant="acme"} 140
bulk_action_jobs_total{outcome="failed",tenant="acme"} 2
bulk_action_jobs_total{outcome="succeeded",tenant="new"} 8
bulk_action_jobs_total{outcome="succeeded",tenant="restarted"} 2
bulk_action_rate_limit_denied_total{reason="tenant",tenant="acme"} 6
bulk_action_attempts_total{outcome="succeeded",type="echo"} 140
bulk_action_attempts_total{outcome="failed",type="echo"} 2
bulk_action_in_flight_size{type="echo"} 9
bulk_action_ready_queue_size{type="echo"} 20
bulk_action_waiting_size{type="echo"} 829
bulk_action_non_ready_queue_size{reason="rate_limited"} 1200
bulk_action_non_ready_queue_size{reason="transient_error"} 0
room_entered_total{room="shop"} 20
room_admitted_total{room="shop"} 7
room_waiting{room="shop"} 13
room_inside{room="shop"} 7
topic_partition_start_offset{partition="0",topic="orders"} 40
topic_partition_end_offset{partition="0",topic="orders"} 160
topic_partition_start_offset{partition="1",topic="orders"} 0
topic_partition_end_offset{partition="1",topic="orders"} 50
topic_partition_bytes{partition="0",topic="orders"} 2024
topic_partition_bytes{partition="1",topic="orders"} 24
topic_group_lag{group="billing",partition="0",topic="orders"} 50
topic_group_lag{group="billing",partition="1",topic="orders"} 5
`
)

func parsed(t *testing.T, at int64, text string) *sample {
	t.Helper()
	s, err := parse(time.Unix(at, 0), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestCompare(t *testing.T) {
	r := compare(parsed(t, 1060, earlier), parsed(t, 1062, later))
	if want := (Process{UptimeSeconds: 62, CPU: 1.5, MemoryBytes: 2097152, Connections: 4, OpenFiles: 8, MaxFiles: 1024}); r.Seconds != 2 || r.Process != want {
		t.Errorf("over %v s: %+v, want %+v", r.Seconds, r.Process, want)
	}
	// A counter that is new began at 0, and so did one that fell.
	if want := []Tenant{{"acme", 20, 1, 3, 142}, {"new", 4, 0, 0, 8}, {"restarted", 1, 0, 0, 2}}; !slices.Equal(r.Tenants, want) {
		t.Errorf("tenants %+v, want %+v", r.Tenants, want)
	}
	if want := []Type{{"echo", 21, 9, 20, 829}}; !slices.Equal(r.Types, want) {
		t.Errorf("types %+v, want %+v", r.Types, want)
	}
	if want := []Room{{"shop", 5, 1.5, 7, 13}}; !slices.Equal(r.Rooms, want) {
		t.Errorf("rooms %+v, want %+v", r.Rooms, want)
	}
	if want := []Topic{{"orders", 30, 2, 170, 2048}}; !slices.Equal(r.Topics, want) {
		t.Errorf("topics %+v, want %+v", r.Topics, want)
	}
	// Partition 0: from 70 to 110. Partition 1 had no committed offset before.
	if want := []Group{{"billing", "orders", 20, 55}}; !slices.Equal(r.Groups, want) {
		t.Errorf("groups %+v, want %+v", r.Groups, want)
	}
	if r.NonReady["rate_limited"] != 1200 {
		t.Errorf("not ready: %v", r.NonReady)
	}
}

func TestArrange(t *testing.T) {
	for order, want := range map[string][]string{byName: {"a", "b", "c"}, byRate: {"c", "a", "b"}, bySize: {"b", "a", "c"}} {
		rows := []Group{{Group: "a", CommittedPerSecond: 2, Lag: 5}, {Group: "b", CommittedPerSecond: 1, Lag: 9}, {Group: "c", CommittedPerSecond: 3}}
		arrange(rows, order)
		var got []string
		for _, row := range rows {
			got = append(got, row.Group)
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %q, want %q", order, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	r := compare(parsed(t, 1060, earlier), parsed(t, 1062, later))
	r.arrange(byRate)
	got := strings.Join(r.lines(1, 80), "\n")
	want := `up 1m02s · 1.50 cores · 2.0 MiB · 4 connections · 8 of 1,024 files · over 2.0s

tenant  succeeded  failed  rate limited  finished
─────────────────────────────────────────────────
acme         20/s   1.0/s         3.0/s       142
and 2 others

job type  attempts  in flight  ready  waiting
─────────────────────────────────────────────
echo          21/s          9     20      829
not ready: 1,200 rate_limited

room  entered  let in  inside  waiting
──────────────────────────────────────
shop    5.0/s   1.5/s       7       13

topic   written  partitions  records     size
─────────────────────────────────────────────
orders     30/s           2      170  2.0 KiB

group    topic   committed  lag
───────────────────────────────
billing  orders       20/s   55`
	if got != want {
		t.Errorf("lines:\n%s\nwant:\n%s", got, want)
	}
}

// On a low screen each table has fewer rows, and at least one.
func TestFit(t *testing.T) {
	r := compare(parsed(t, 1060, earlier), parsed(t, 1062, later))
	for height, want := range map[int]int{60: 24, 25: 24, 24: 23, 10: 9} {
		if got := r.fit(0, func() (int, int) { return 81, height }); len(got) != want {
			t.Errorf("%d lines on a screen of %d, want %d:\n%s", len(got), height, want, strings.Join(got, "\n"))
		}
	}
}

// A server without a part has no table of it.
func TestLinesOfAnIdleServer(t *testing.T) {
	r := compare(parsed(t, 1000, "process_start_time_seconds 1000\n"), parsed(t, 1002, "process_start_time_seconds 1000\n"))
	if got := r.lines(10, 80); len(got) != 1 {
		t.Errorf("lines %q, want only that of the process", got)
	}
}

func TestCommand(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/metrics":
			http.NotFound(w, r)
		case asked.Add(1)%2 == 1:
			_, _ = w.Write([]byte(earlier))
		default:
			_, _ = w.Write([]byte(later))
		}
	}))
	defer server.Close()
	code, stdout, stderr := clitest.Command(t, Command, "top", "--once", "--json", "--interval", "100ms", "--sort", "name", "--server", server.URL)
	var r Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil || len(r.Tenants) != 3 || r.Tenants[0].Tenant != "acme" || r.Seconds <= 0 {
		t.Errorf("sluice top --once --json: code %d, %v, %s%s", code, err, stdout, stderr)
	}
	code, stdout, _ = clitest.Command(t, Command, "top", "--once", "--interval", "100ms", "--server", server.URL)
	if code != 0 || !strings.Contains(stdout, "\nbilling  orders  ") {
		t.Errorf("sluice top --once: code %d\n%s", code, stdout)
	}
}

func TestCommandRefusesWrongInput(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer page.Close()
	for line, want := range map[string]string{
		"--interval 1ms":        "want from 100ms to 1h",
		"--sort speed":          "want rate, size or name",
		"--rows -1":             "want a number of rows, or 0 for all",
		"--server " + page.URL:  "is it a sluice server?",
		"--server 127.0.0.1:80": "want a URL",
	} {
		code, _, stderr := clitest.Command(t, Command, append([]string{"top", "--once"}, strings.Fields(line)...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("sluice top --once %s: code %d, %q; want %q", line, code, stderr, want)
		}
	}
}
