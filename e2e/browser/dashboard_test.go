package browser

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-project/sluice/internal/testkit/ports"
)

// axe is axe-core 4.14.1 of npm, which finds what people with disabilities cannot use.
//
//go:embed testdata/axe.min.js.gz
var axe []byte

const axeDigest = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

// axeScript returns axe-core, which must be that of the release.
func axeScript(t *testing.T) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(axe))
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(script); hex.EncodeToString(sum[:]) != axeDigest {
		t.Fatalf("axe-core has the digest %x", sum)
	}
	return string(script)
}

// adminToken is that of the plant's settings.
const adminToken = "the admin token of a plant"

// plant is a server with accounts, and with load on all parts.
type plant struct {
	t           *testing.T
	url, binary string
	kafka       string
}

// newPlant starts the real binary, which stops when the test ends.
func newPlant(t *testing.T) *plant {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sluice")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", binary, "./cmd/sluice")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	taken := ports.Take(t, 3)
	p := &plant{t, "http://127.0.0.1:" + strconv.Itoa(taken[0]), binary, "127.0.0.1:" + strconv.Itoa(taken[1])}
	server := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "serve", "--data", t.TempDir(),
		"--http", "127.0.0.1:"+strconv.Itoa(taken[0]), "--kafka", fmt.Sprintf("inner=plain://%s,other=plain://127.0.0.1:%d", p.kafka, taken[2]))
	server.Env = append(os.Environ(), "SLUICE_BULK_WEBHOOK_ALLOW=127.0.0.0/8", "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
	server.Stderr = t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(patience); ; pause() {
		answer, err := http.Get(p.url + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
		}
		if err == nil && answer.StatusCode == http.StatusOK {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server is not ready: %v", err)
		}
	}
}

// call makes a request of the API, and returns a field of the answer.
func (p *plant) call(method, path, body, field string) string {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/v1/actions/") && strings.HasSuffix(path, "/jobs") {
		request.Header.Set("Content-Type", "application/x-ndjson")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		p.t.Fatalf("%s %s: %d %s %v", method, path, answer.StatusCode, text, err)
	}
	fields := map[string]any{}
	_ = json.Unmarshal(text, &fields) // some answers are empty
	return fmt.Sprint(fields[field])
}

// run runs a command of the binary.
func (p *plant) run(args ...string) {
	p.t.Helper()
	command := exec.CommandContext(p.t.Context(), p.binary, args...)
	command.Env = append(os.Environ(), "SLUICE_TOKEN="+adminToken, "SLUICE_BROKERS="+p.kafka)
	if out, err := command.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// signIn opens the dashboard in a new window, as an admin.
func (p *plant) signIn(look look) *visitor {
	p.t.Helper()
	v := newVisitor(p.t, look)
	v.only = p.url
	v.act(`location.pathname === "/ui/"`, chromedp.Navigate(p.url+"/ui/sign-in"), chromedp.SendKeys(chromedp.CSS("input[name=token]"), adminToken+kb.Enter))
	return v
}

// enter lets visitors come into a room.
func (p *plant) enter(room string, visitors int) {
	for range visitors {
		p.call("POST", "/v1/rooms/"+room+"/visitors", "{}", "")
	}
}

// load gives all parts something to do, and returns an action that goes on for the whole test.
func (p *plant) load() (action string) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/bad") {
			http.Error(w, `<b>declined</b>`, http.StatusUnprocessableEntity)
		}
	}))
	p.t.Cleanup(target.Close)
	p.call("PUT", "/v1/targets/mail", `{"url_prefix":"`+target.URL+`/","requests_per_second":2}`, "")
	p.call("PUT", "/v1/targets/billing", `{"url_prefix":"`+target.URL+`/","requests_per_second":"auto"}`, "")
	p.call("PUT", "/v1/tenants/acme", `{"weight":3,"max_actions":10,"max_jobs":100000,"max_bytes":1073741824}`, "")
	p.call("PUT", "/v1/schedules/nightly", `{"cron":"0 3 * * *","time_zone":"Asia/Seoul","tenant":"acme","type":"echo","jobs":[1,"<script>alert(1)</script>"]}`, "")
	p.call("POST", "/v1/jobs", `{"tenant":"acme","type":"remote","payload":1}`, "")
	for _, a := range []struct{ tenant, target, path string }{{"acme", "billing", "bad"}, {"nordwind & sons", "mail", "ok"}} {
		action = p.call("POST", "/v1/actions", fmt.Sprintf(`{"tenant":%q,"target":{"name":%q,"url":"/%s"}}`, a.tenant, a.target, a.path), "id")
		p.call("POST", "/v1/actions/"+action+"/jobs", strings.Repeat(`{"note":"<script>alert(1)</script>"}`+"\n", 2000), "")
		p.call("POST", "/v1/actions/"+action+"/seal", `{"total":2000}`, "")
	}
	p.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":2}`, "")
	p.call("PUT", "/v1/rooms/fair", `{"mode":"park","batch":5,"interval_ms":60000,"stay_ms":600000}`, "")
	p.enter("shop", 5)
	p.enter("fair", 3)
	p.call("POST", "/v1/rooms/fair/pause", "", "")
	p.call("POST", "/v1/tokens", `{"name":"billing-importer","roles":["submitter"],"tenants":["acme","nordwind & sons"]}`, "")
	p.run("topic", "create", "orders", "--partitions", "3")
	p.run("topic", "create", "reminders", "--delay-enable")
	p.run("group", "reset", "billing", "--topic", "orders", "--to", "start")
	return action
}

// Every page, in each language, theme and width, is of the server alone and fits the screen, and axe-core
// finds nothing in it: it sees each language with each theme and each width, and each theme with each width.
func TestDashboard(t *testing.T) {
	p := newPlant(t)
	action := p.load()
	script := axeScript(t)
	pages := map[string]string{
		"overview": "", "bulk": "bulk", "bulk-all": "bulk?status=", "action": "bulk/action?name=" + action, "tenants": "bulk/tenants", "targets": "bulk/targets",
		"streams": "bulk/streams", "schedules": "bulk/schedules", "schedule": "bulk/schedule?name=nightly", "failures": "bulk/failures", "failures-of": "bulk/failures?tenant=acme",
		"workers": "bulk/workers", "confirm-replay": "act?do=replay_found&name=tenant%3Dacme",
		"rooms": "rooms", "room": "rooms/room?name=shop", "topics": "topics", "topic": "topics/topic?name=sluice.room.events",
		"records": "topics/records?name=sluice.room.events&partition=0", "tail": "topics/tail?name=sluice.room.events",
		"records-found": "topics/records?name=sluice.room.events&partition=0&find=shop", "delayed": "topics/delayed?name=reminders",
		"groups": "topics/groups", "group": "topics/group?name=billing", "reset": "topics/reset?name=billing&topic=orders&to=end",
		"access": "access", "audit": "access/audit", "confirm-revoke": "act?do=revoke_token&name=billing-importer", "cluster": "cluster", "settings": "settings",
		"confirm": "act?do=cancel_action&name=" + action,
	}
	for _, lang := range []string{"en", "ko"} {
		t.Run(lang, func(t *testing.T) {
			p := *p
			p.t = t
			v := p.signIn(look{lang: lang, width: 1280})
			for name, path := range pages {
				v.run(chromedp.Navigate(p.url+"/ui/"+path), chromedp.Evaluate[chromedp.Void](script))
				if got := evaluate[string](v, "document.documentElement.lang"); got != lang {
					t.Errorf("%s is in %q", name, got)
				}
				for _, look := range []look{{lang, 1280, false, false}, {lang, 390, false, false}, {lang, 1280, false, true}, {lang, 390, false, true}} {
					v.as(look)
					v.fits()
					v.screenshot("dashboard-" + name)
					if pairs := (lang == "en") == (look.dark == (look.width == 390)); !pairs {
						continue
					}
					if found := evaluate[string](v, audit); found != "" {
						t.Errorf("axe-core finds in %s, %s: %s", name, look, found)
					}
				}
			}
		})
	}
}

// audit lists what axe-core finds.
const audit = `axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")).join("\n"))`

// The figures follow without a load of the page, but not while somebody reads a table. An act asks,
// and then happens. It all works by the keyboard.
func TestDashboardRefreshesAndActs(t *testing.T) {
	p := newPlant(t)
	p.load()
	v := p.signIn(look{lang: "en", width: 1280})
	v.run(chromedp.Navigate(p.url + "/ui/rooms/room?name=shop"))
	v.see("dd.big", "3")
	evaluate[bool](v, "window.kept = true")
	p.enter("shop", 4)
	v.see("dd.big", "7")
	if !evaluate[bool](v, "window.kept === true") {
		t.Error("the page was loaded again")
	}
	v.act(`location.pathname === "/ui/act" && document.querySelector("form.confirm button") !== null`, enter(`a[href*="pause_room"]`))
	v.act(`location.pathname === "/ui/rooms/room"`, enter("form.confirm button"))
	v.see(".pill", "paused")

	v.run(chromedp.Navigate(p.url+"/ui/"), chromedp.WaitVisible(chromedp.CSS("figure summary")))
	// refresh loads the page again, and reports whether that has replaced the figure.
	refresh := func() bool {
		return evaluate[bool](v, `new Promise(done => {
			document.querySelector("figure").kept = true;
			document.addEventListener("htmx:afterRequest", () => setTimeout(() => done(!document.querySelector("figure").kept)), {once: true});
			htmx.trigger("#live", "refresh");
		})`)
	}
	evaluate[bool](v, `document.querySelector("figure details").open = true`)
	if refresh() {
		t.Error("a table that is open was replaced")
	}
	evaluate[bool](v, `document.querySelector("figure details").open = false; true`)
	if !refresh() {
		t.Error("the page does not refresh after the table was closed")
	}
}
