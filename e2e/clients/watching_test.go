package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

var (
	deployed = filepath.Join("..", "..", "deploy")
	promQL   = parser.NewParser(parser.Options{})
)

// TestAlerts: Prometheus takes the rules, each says how grave it is, and its runbook exists.
func TestAlerts(t *testing.T) {
	for _, group := range alerts(t) {
		for _, rule := range group.Rules {
			if severity := rule.Labels["severity"]; severity != "page" && severity != "warning" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			page, section, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
			path, ours := strings.CutPrefix(page, "https://github.com/sluice-project/sluice/blob/main/")
			if !ours || rule.Annotations["summary"] == "" {
				t.Fatalf("%s has no summary, or no runbook: %q", rule.Alert, page)
			}
			content := string(must(os.ReadFile(filepath.Join("..", "..", path)))(t))
			if section != "" && !sectionOf(content, section) {
				t.Errorf("%s: %s has no section %q", rule.Alert, path, section)
			}
		}
	}
}

// alerts returns the rules as Prometheus reads them.
func alerts(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(deployed, "prometheus", "alerts.yaml"), false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return groups.Groups
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

// sectionOf reports whether a page has a section of that anchor.
func sectionOf(page, anchor string) bool {
	for line := range strings.SplitSeq(page, "\n") {
		title, heading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if heading && strings.HasPrefix(line, "#") &&
			strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(title), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// notOurs matches the metrics that libraries make.
var notOurs = regexp.MustCompile("^(go|process|promhttp)_")

// TestDashboards: each query of the dashboards finds data on a server that works, and the metrics of the
// alerts are there, or documented: those of failures have no series before the first one. A rate needs two
// samples, and a series may begin a moment after the work, so the server works until all is found.
func TestDashboards(t *testing.T) {
	db := must(tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil))(t)
	defer db.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: patience, Parser: promQL})
	missing, types := dashboards(t), map[string]bool{}
	url, more := busyServer(t)
	at, round := time.Now(), 0
	defer func() {
		for query, why := range missing {
			t.Errorf("after %d rounds, %s finds nothing: %s", round, query, why)
		}
	}()
	eventually(t, "each query finds data", func() bool {
		more(round)
		store(t, db, get(t, url+"/metrics"), at, types)
		for query := range missing {
			if missing[query] = finds(t, engine, db, query, at); missing[query] == "" {
				delete(missing, query)
			}
		}
		at, round = at.Add(time.Minute), round+1
		return len(missing) == 0
	})
	documented := ""
	for _, page := range []string{"bulk/metrics.md", "room/operating.md", "topic/metrics.md", "watching.md", "reliability.md", "security.md"} {
		documented += string(must(os.ReadFile(filepath.Join("..", "..", "docs", page)))(t))
	}
	for name := range types {
		if !notOurs.MatchString(name) && !strings.Contains(documented, "`"+name+"`") {
			t.Errorf("no page of docs has the metric %s", name)
		}
	}
	for _, group := range alerts(t) {
		for _, rule := range group.Rules {
			for _, name := range metricsOf(t, rule.Expr) {
				if !types[name] && name != "up" && !strings.Contains(documented, "`"+name+"`") {
					t.Errorf("%s: there is no metric %s", rule.Alert, name)
				}
			}
		}
	}
}

// metricsOf returns the names of the metrics in an expression; a histogram's without its suffix.
func metricsOf(t *testing.T, expression string) (names []string) {
	t.Helper()
	parser.Inspect(must(promQL.ParseExpr(expression))(t), func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			names = append(names, strings.TrimSuffix(selector.Name, "_bucket"))
		}
		return nil
	})
	return names
}

// dashboards returns the queries of all dashboards, and why each has found nothing yet.
func dashboards(t *testing.T) map[string]string {
	t.Helper()
	files := must(filepath.Glob(filepath.Join(deployed, "grafana", "*.json")))(t)
	equal(t, "dashboards", len(files), 3)
	queries := map[string]string{}
	for _, file := range files {
		for _, of := range panels(t, file) {
			for _, query := range of {
				queries[strings.ReplaceAll(query, "$__rate_interval", "5m")] = "it was not asked"
			}
		}
	}
	return queries
}

// finds returns "" if a query finds data, and otherwise why not.
func finds(t *testing.T, engine *promql.Engine, db *tsdb.DB, text string, at time.Time) string {
	query, err := engine.NewInstantQuery(t.Context(), db, nil, text, at)
	if err != nil {
		return err.Error()
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if vector, err := result.Vector(); err != nil || len(vector) == 0 {
		return fmt.Sprint(result, err)
	}
	return ""
}

// panels returns the queries of a dashboard, by the titles of their panels.
func panels(t *testing.T, file string) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(must(os.ReadFile(file))(t), &board); err != nil {
		t.Fatal(err)
	}
	queries := map[string][]string{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], target.Expr)
		}
	}
	if len(queries) == 0 {
		t.Fatal(file, " has no panels")
	}
	return queries
}

// busyServer starts a server, and returns its URL and a function that has each part do something.
func busyServer(t *testing.T) (url string, more func(round int)) {
	t.Helper()
	gate := "http://" + freeAddr(t)
	ready, api, kafka := startNode(t, "--gate-http", strings.TrimPrefix(gate, "http://"), "--gate-room", "fair", "--gate-upstream", upstream(t))
	ready()
	url = "http://" + api
	call(t, "PUT", url+"/v1/tenants/acme", `{"max_jobs":1000000}`)
	call(t, "PUT", url+"/v1/rooms/fair", `{"mode":"teller","capacity":9}`)
	call(t, "PUT", url+"/v1/rooms/shop", `{"mode":"teller","capacity":1}`)
	call(t, "POST", url+"/v1/rooms/shop/visitors", `{"visitor":"ada"}`)
	call(t, "POST", url+"/v1/rooms/shop/visitors", `{"visitor":"bob"}`)
	config := saramaConfig(sarama.DefaultVersion)
	admin := saramaCreate(t, kafka, config, "orders", 1)
	member := saramaJoin(t, kafka, config, "orders", 0)
	t.Cleanup(func() {
		member.stop()
		_ = admin.Close()
	})
	return url, func(round int) {
		action := fmt.Sprint("resize-", round)
		call(t, "POST", url+"/v1/actions", `{"id":"`+action+`","tenant":"acme","type":"resize"}`)
		call(t, "POST", url+"/v1/actions/"+action+"/jobs", "1\n2\n3\n")
		call(t, "POST", url+"/v1/actions/"+action+"/seal", `{"total":3}`)
		leased := call(t, "POST", url+"/v1/leases", `{"types":["resize"],"max":1,"wait_ms":20000}`)
		lease := leased["jobs"].([]any)[0].(map[string]any)["lease"].(string)
		call(t, "POST", url+"/v1/leases/ack", `{"outcomes":[{"lease":"`+lease+`","status":"succeeded","took_ms":41}]}`)
		saramaSend(t, kafka, config, saramaNumbered("orders", round*10, round*10+10, "")...)
		eventually(t, "the group has read", func() bool { return len(member.got()) == round*10+10 })
		visit(t, gate, url+"/v1/rooms/fair")
		gone := call(t, "POST", url+"/v1/rooms/shop/visitors", fmt.Sprintf(`{"visitor":"gone %d"}`, round))
		leave(t, url+"/v1/rooms/shop/visitors/me", gone["ticket"].(string))
	}
}

// upstream starts a site whose /fail is overloaded, and returns its URL.
func upstream(t *testing.T) string {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "the shop")
	}))
	t.Cleanup(site.Close)
	return site.URL
}

// visit goes through a gate as a browser does: it waits while the room is paused, comes in, and asks for a page that
// fails. A proxy asks for somebody else.
func visit(t *testing.T, gate, room string) {
	t.Helper()
	browser := &http.Client{Jar: must(cookiejar.New(nil))(t)}
	ask := func(path string) string {
		request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, gate+path, http.NoBody))(t)
		request.Header.Set("Accept", "text/html")
		request.Header.Set("Sec-Fetch-Mode", "navigate")
		response, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return string(must(io.ReadAll(response.Body))(t))
	}
	call(t, "POST", room+"/pause", "")
	ask("/")
	call(t, "POST", room+"/resume", "")
	eventually(t, "the visitor is inside", func() bool { return ask("/") == "the shop" })
	ask("/fail")
	browser.Jar = nil
	ask("/.sluice/check/")
}

// leave gives up a place.
func leave(t *testing.T, url, ticket string) {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), http.MethodDelete, url, http.NoBody))(t)
	request.Header.Set("Authorization", "Bearer "+ticket)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	equal(t, "the answer to a visitor who leaves", response.StatusCode, http.StatusNoContent)
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return string(must(io.ReadAll(response.Body))(t))
}

// store keeps the samples of a page of metrics, and the names of its families.
func store(t *testing.T, db *tsdb.DB, page string, at time.Time, families map[string]bool) {
	t.Helper()
	app := db.Appender(context.Background())
	symbols := labels.NewSymbolTable()
	parse := textparse.NewPromParser([]byte(page), symbols, false)
	for {
		entry, err := parse.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch entry {
		case textparse.EntryType:
			name, _ := parse.Type()
			families[string(name)] = true
		case textparse.EntrySeries:
			var series labels.Labels
			_, _, value := parse.Series()
			parse.Labels(&series)
			with := labels.NewBuilder(series).Set("instance", "one").Set("job", "sluice").Labels()
			if _, err := app.Append(0, with, at.UnixMilli(), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}
