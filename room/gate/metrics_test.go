package gate

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/room"
)

// wantCounts compares the counts of a name with their labels' values; of a histogram, how many
// values it has. It returns the sum of a histogram's.
func wantCounts(t *testing.T, m *Metrics, name, want string) (sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			text := ""
			for _, label := range metric.GetLabel() {
				text += label.GetValue() + " "
			}
			count := metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			got = append(got, text+strconv.Itoa(int(count)))
			sum += metric.GetHistogram().GetSampleSum()
		}
	}
	if all := strings.Join(got, ", "); all != want {
		t.Errorf("%s: %q; want %q", name, all, want)
	}
	return sum
}

func TestMetricsOfPages(t *testing.T) {
	s := newStand(t, nil)
	s.get("/", asPage)
	s.get("/", asPage, ticket(1))
	s.get("/", asProgram)
	s.get("/a.png", asImage)
	s.enter = room.ErrLineFull
	s.get("/", asPage)
	s.enter = room.ErrEnded
	s.get("/", asPage)
	s.away = room.ErrUnavailable
	s.get("/", asPage)
	s.gate.Failed(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody), http.StatusBadGateway)
	wantCounts(t, s.gate.metrics, "room_gate_pages_total", "ended shop 1, failed shop 1, full shop 1, unavailable shop 1, waiting shop 2")
}

// A page that a proxy gets with a second question is counted once.
func TestMetricsOfChecks(t *testing.T) {
	s := newChecked(t)
	s.get(checkURL+"/", asPage, pass(1))
	s.get(checkURL+"/about", asPage)
	s.get(checkURL+"/", asPage)
	s.get(checkURL+"/?on=status", asPage)
	s.get(checkURL, asPage)
	s.get(checkURL+"?on=status", asPage, header("X-Original-URI", "/"))
	s.get("http://gate.internal"+PagePath, asPage, header("X-Original-URI", "/"))
	s.get(checkURL+"/", asPage, func(r *http.Request) { r.RemoteAddr = "203.0.113.1:1" })
	wantCounts(t, s.gate.metrics, "room_gate_checks_total", "held shop 3, inside shop 1, invalid  2, no_pass shop 1")
	wantCounts(t, s.gate.metrics, "room_gate_pages_total", "waiting shop 3")
}

// The wait is that of visitors who saw the page, from joining to coming in.
func TestMetricsOfWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics()
		town := newTownWith(t, Options{Metrics: metrics}, room.Settings{Mode: room.Teller, Capacity: 1})
		defer town.stop()
		anna, ben := town.browser(), town.browser()
		anna.want("shop", "GET", "/")
		for range 10 {
			ben.want("waiting 1", "GET", "/")
			time.Sleep(10 * time.Second)
		}
		anna.want("/.sluice/shop/left?to=%2F", "POST", "/.sluice/shop/leave")
		ben.want("shop", "GET", "/")
		ben.want("shop", "GET", "/")
		if sum := wantCounts(t, metrics, "room_gate_wait_seconds", "shop 1"); sum != 100 {
			t.Errorf("a wait of %v s; want 100", sum)
		}
		for text, want := range map[string]bool{"3.": false, "3..-5": false, "3..1": false, "3..99999999999999": false, "3..x": false, "3.left.946684800": true} {
			if _, known := parseLineNote(text, builtInWords[0]).waited(time.Unix(946684900, 0)); known != want {
				t.Errorf("the wait of %q is known: %v; want %v", text, known, want)
			}
		}
	})
}

func TestMetricsOfUpstreams(t *testing.T) {
	metrics := NewMetrics()
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/error":
			w.WriteHeader(http.StatusInternalServerError)
		case "/broken":
			panic(http.ErrAbortHandler)
		case "/slow":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(behind.Close)
	s := newStand(t, nil)
	s.set(1, room.Inside)
	s.settings.Bypass = []room.Rule{{Path: "/about"}}
	patient, hasty := serveProxy(t, s, ProxyOptions{Metrics: metrics}, behind.URL), serveProxy(t, s, ProxyOptions{Metrics: metrics, HeaderTimeout: 50 * time.Millisecond}, behind.URL)
	nobody := serveProxy(t, s, ProxyOptions{Metrics: metrics}, "http://"+ports.Addrs(t, 1)[0])
	for _, url := range []string{
		patient + "/", patient + "/missing", patient + "/busy", patient + "/error", patient + "/broken", hasty + "/slow", patient + "/about", nobody + "/",
	} {
		fetch(t, "GET", url, "", asPage, pass(1))
	}
	wantCounts(t, metrics, "room_gate_upstream_seconds", " 1, shop 4")
	wantCounts(t, metrics, "room_gate_upstream_errors_total", "broken shop 1, busy shop 1, connect shop 1, error shop 1, timeout shop 1")
}
