package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/puzzle"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// shop is a tiny site behind the gate: /pay ends the visit.
func shop(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pay" {
			w.Header().Set("Sluice-Release", "pass")
		}
		_, _ = fmt.Fprintf(w, "the shop has %s, with a pass: %v", r.URL.Path, r.Header.Get("Sluice-Pass") != "")
		if form, _ := io.ReadAll(r.Body); len(form) > 0 {
			_, _ = fmt.Fprintf(w, ", and %s", form)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// newGate starts a server that runs as "sluice gate"; front is its public address.
func newGate(t *testing.T, upstream string, args ...string) (s *server, front string) {
	t.Helper()
	front = ports.Addrs(t, 1)[0]
	s = newServer(t, append([]string{"--listen", front, "--room", "shop", "--upstream", upstream}, args...)...)
	s.command = []string{"gate"}
	return s, "http://" + front
}

// person is a browser without JavaScript: it keeps cookies.
type person struct {
	t      *testing.T
	client *http.Client
	front  string
	// host is what the person asks for, if it is not the front.
	host string
}

func newPerson(t *testing.T, front string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &person{t: t, client: &http.Client{Jar: jar, Timeout: 30 * time.Second}, front: front}
}

// get opens a page; another content type gives the answer for programs.
func (p *person) get(path, accept string) answer {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.front+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	return p.do(request)
}

func (p *person) do(request *http.Request) answer {
	p.t.Helper()
	request.Host = p.host
	response, err := p.client.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, body}
}

func (p *person) inShop(path string) bool {
	a := p.get(path, "text/html")
	plain, _, _ := strings.Cut(path, "?")
	if a.status != http.StatusOK || string(a.body) != fmt.Sprintf("the shop has %s, with a pass: true", plain) {
		return false
	}
	p.get("/favicon.ico", "image/*") // as browsers do
	return true
}

// A gate in front of a shop: the first visitor is let through; the next waits on a page, and is let
// through when the first has paid.
func TestGate(t *testing.T) {
	t.Parallel()
	s, front := newGate(t, shop(t).URL, "--capacity", "1")
	s.start()
	first, second, program := newPerson(t, front), newPerson(t, front), newPerson(t, front)
	if !first.inShop("/") || !first.inShop("/cart") {
		t.Fatal("who came first is not in the shop")
	}
	page := second.get("/", "text/html")
	if page.status != http.StatusOK || !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") ||
		page.header.Get("Cache-Control") != "no-store" || page.header.Get("Retry-After") == "" || strings.Contains(string(page.body), "the shop has") {
		t.Errorf("who comes then sees %d %v %.200s", page.status, page.header, page.body)
	}
	cookies := strings.Join(page.header["Set-Cookie"], "\n")
	if !strings.Contains(cookies, "sluice_ticket_shop=") || !strings.Contains(cookies, "HttpOnly") || !strings.Contains(cookies, "SameSite=Lax") {
		t.Errorf("the cookies are %s", cookies)
	}
	var place visitor
	if a := program.get("/", "application/json"); a.status != http.StatusAccepted {
		t.Errorf("a program gets %d %s", a.status, a.body)
	} else if err := a.json(&place); err != nil || place.position() != 2 || place.Ticket != "" {
		t.Errorf("a program gets %s (%v), want position 2, and no ticket that scripts could read", a.body, err)
	}
	if v := s.room("shop"); v.Inside != 1 || v.Waiting != 2 {
		t.Errorf("the room is %+v", v)
	}
	first.get("/pay", "text/html")
	until.True(t, "the next is let through", func() bool { return second.inShop("/") })
	if first.inShop("/") {
		t.Error("who has paid is in the shop without waiting again")
	}
	a, err := s.do("GET", "/metrics", "", nil)
	for _, line := range []string{
		`room_gate_pages_total{kind="waiting",room="shop"} `, `room_gate_wait_seconds_count{room="shop"} 1`, `room_gate_upstream_seconds_count{room="shop"} `,
	} {
		if err != nil || !strings.Contains(string(a.body), line) {
			t.Errorf("the metrics have no %s (%v)", line, err)
		}
	}
}

// A gate that asks for work lets in a browser that has done it, and nobody else: a place of the API
// is not enough.
func TestGateAsksForWork(t *testing.T) {
	t.Parallel()
	s, front := newGate(t, shop(t).URL, "--capacity", "1", "--challenge-provider", "proof_of_work", "--challenge-min-bits", "12")
	s.start()
	p := newPerson(t, front)
	page := p.get("/cart", "text/html")
	found := regexp.MustCompile(`name="sluice-puzzle" value="([^"]+)" data-bits="12"`).FindStringSubmatch(string(page.body))
	if page.status != http.StatusForbidden || found == nil {
		t.Fatalf("the page has no puzzle: %d %s", page.status, page.body)
	}
	form := url.Values{"to": {"/cart"}, "sluice-puzzle": {found[1]}, "sluice-proof": {puzzle.Solve(found[1], 12)}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front+"/.sluice/shop/enter", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if a := p.do(request); a.status != http.StatusOK || string(a.body) != "the shop has /cart, with a pass: true" {
		t.Errorf("after the work there is %d %s", a.status, a.body)
	}
	other := newPerson(t, front)
	place := s.enter("shop", "", http.StatusCreated)
	request, err = http.NewRequestWithContext(t.Context(), http.MethodGet, front+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Cookie", "sluice_ticket_shop="+place.Ticket)
	request.Header.Set("Accept", "text/html")
	if a := other.do(request); a.status != http.StatusForbidden || !strings.Contains(string(a.body), `data-kind="proof"`) {
		t.Errorf("a place of the API: %d %s", a.status, a.body)
	}
}

// A gate that finds the capacity begins with the least that is set, and lets in who waits while the
// upstream does not become slower. That is judged from ten requests a second on: here are fewer, so
// that a busy machine is not taken for a slow upstream.
func TestGateFindsTheCapacity(t *testing.T) {
	t.Parallel()
	s, front := newGate(t, shop(t).URL, "--capacity", "auto", "--auto-min", "1", "--claim-window", "1m")
	s.start()
	first, second := newPerson(t, front), newPerson(t, front)
	if !first.inShop("/") || second.inShop("/") {
		t.Fatal("at first there is not one inside")
	}
	pace := time.Tick(time.Second)
	until.True(t, "the second is let in", func() bool {
		<-pace
		return first.inShop("/") && second.inShop("/")
	})
}

// Places behind a gate survive its death, and flags change the settings of an existing room.
func TestGateSurvivesAKill(t *testing.T) {
	t.Parallel()
	upstream := shop(t).URL
	s, front := newGate(t, upstream, "--capacity", "1")
	s.start()
	first, second := newPerson(t, front), newPerson(t, front)
	if !first.inShop("/") || second.inShop("/") {
		t.Fatal("not one is in the shop")
	}
	s.kill()
	s.args = []string{"--listen", strings.TrimPrefix(front, "http://"), "--room", "shop", "--upstream", upstream}
	s.start()
	until.True(t, "after the start, the first is in the shop", func() bool { return first.inShop("/") })
	if second.inShop("/") {
		t.Error("after the start another is in the shop too")
	}
	s.kill()
	s.args = append(s.args, "--capacity", "2")
	s.start()
	until.True(t, "with room for two, the second is let through", func() bool { return second.inShop("/") })
}

// run runs a command of the binary that ends by itself.
func run(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	text, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), command.ProcessState.ExitCode()
}

// A gate reports what is missing, and what to do when a server has locked the directory.
func TestGateErrors(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	free := ports.Addrs(t, 2)
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no room", []string{"--upstream", "http://127.0.0.1:1"}, 2, "--room shop"},
		{"no upstream", []string{"--room", "shop"}, 2, "--upstream http://"},
		{"no capacity", []string{"--room", "shop", "--upstream", "http://127.0.0.1:1", "--data", t.TempDir()}, 2, "there is no room shop yet: say how it lets people in"},
		{"a wrong capacity", []string{"--room", "shop", "--upstream", "http://127.0.0.1:1", "--data", t.TempDir(), "--capacity", "0"}, 2, "capacity"},
		{"a directory in use", []string{"--room", "shop", "--upstream", "http://127.0.0.1:1", "--data", s.data, "--capacity", "1"}, 1, "another process has it open"},
		{"what to do about it", []string{"--room", "shop", "--upstream", "http://127.0.0.1:1", "--data", s.data, "--capacity", "1"}, 1, `"sluice serve" with gate.http`},
		{"no Redis", []string{"--room", "shop", "--upstream", "http://127.0.0.1:1", "--state", "redis://u:s3cr3t@127.0.0.1:1", "--capacity", "1"}, 1, "redis://u:(hidden)@127.0.0.1:1"},
	} {
		output, code := run(t, append([]string{"gate", "--listen", free[0], "--http", free[1]}, test.args...)...)
		if code != test.code || !strings.Contains(output, test.want) || strings.Contains(output, "s3cr3t") {
			t.Errorf("%s: code %d, %s\nwant %d, %q", test.name, code, output, test.code, test.want)
		}
	}
}

// One process is both a server and a gate of a room that its file defines.
func TestServeIsAGateToo(t *testing.T) {
	t.Parallel()
	front := ports.Addrs(t, 1)[0]
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	writeFile(t, file, fmt.Sprintf(`
room:
  rooms:
    shop:
      mode: teller
      capacity: 1
      bypass:
        - path: /about
gate:
  http: %s
  room: shop
  upstream: %s
`, front, shop(t).URL))
	s := startServer(t, "--config", file)
	first, second := newPerson(t, "http://"+front), newPerson(t, "http://"+front)
	if !first.inShop("/") || second.inShop("/") {
		t.Error("not one is in the shop")
	}
	if a := second.get("/about", "text/html"); string(a.body) != "the shop has /about, with a pass: false" {
		t.Errorf("what needs no pass: %d %s", a.status, a.body)
	}
	if v := s.room("shop"); v.Inside != 1 || v.Waiting != 1 {
		t.Errorf("the room is %+v", v)
	}
}

// One gate stands in front of many sites, and reads them again when its file changes.
func TestGateOfManySites(t *testing.T) {
	t.Parallel()
	front := ports.Addrs(t, 1)[0]
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	sites := func(hosts, path string) {
		writeFile(t, file+".new", fmt.Sprintf(`
room:
  rooms:
    shop: {mode: teller, capacity: 1}
    tickets: {mode: teller, capacity: 1}
gate:
  sites:
    - hosts: [%s]
      room: shop
      upstream: %s
      rules:
        - path: %s
        - path: /tickets/*
          room: tickets
`, hosts, shop(t).URL, path))
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	sites("shop.test", "/about")
	s := newServer(t, "--listen", front, "--config", file)
	s.command = []string{"gate"}
	s.start()
	at := func(host string) *person {
		p := newPerson(t, "http://"+front)
		p.host = host
		return p
	}
	anna, ben := at("shop.test"), at("shop.test")
	if !anna.inShop("/") || ben.inShop("/") || !ben.inShop("/tickets/1") {
		t.Error("each room does not have one visitor")
	}
	if a := ben.get("/about", "text/html"); string(a.body) != "the shop has /about, with a pass: false" {
		t.Errorf("what needs no pass: %d %s", a.status, a.body)
	}
	if a := at("other.test").get("/", "text/html"); a.status != http.StatusMisdirectedRequest {
		t.Errorf("an unknown host: %d %s", a.status, a.body)
	}
	sites("shop.test, other.test", "about")
	output, code := run(t, "gate", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--config", file)
	if code != 2 || !strings.Contains(output, file+":12: gate.sites[0].rules[0].path: ") {
		t.Errorf("a wrong site: %d %s", code, output)
	}
	sites("shop.test, other.test", "/about")
	until.True(t, "the new host is served", func() bool { return at("other.test").get("/", "text/html").status == http.StatusOK })
	if !anna.inShop("/") {
		t.Error("a visitor lost the visit when the sites changed")
	}
}

// The operators' commands work on a real server.
func TestRoomCommands(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	at := []string{"--server", "http://" + s.addr}
	steps := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"list"}, 0, "no rooms"},
		{[]string{"create", "shop", "--capacity", "2", "--pass-ttl", "5m", "--route", "/checkout/*"}, 0, "shop is made: at most 2 at once, with sliding passes of 5m\n"},
		{[]string{"create", "fair", "--batch", "3", "--interval", "1m", "--stay", "10m"}, 0, "fair is made: 3 every 1m, for 10m\n"},
		{[]string{"create", "shop", "--capacity", "1"}, 0, "shop is changed"},
		{[]string{"create", "shop", "--capacity", "1", "--stay", "1m"}, 2, "stay_ms"},
		{[]string{"create", "shop"}, 2, "--capacity NUMBER"},
		{[]string{"show", "shop"}, 0, "at most 1 at once"},
		{[]string{"show", "shop", "--json"}, 0, `"room":"shop"`},
		{[]string{"show", "none"}, 1, "sluice room list"},
		{[]string{"list"}, 0, "fair  park    open"},
		{[]string{"pause", "shop"}, 0, "shop is paused"},
		{[]string{"resume", "shop"}, 0, "shop is open"},
		{[]string{"revoke", "shop"}, 0, "all passes are revoked"},
		{[]string{"revoke", "shop", "--visitor", "nobody"}, 1, "no such visitor"},
		{[]string{"rotate-keys"}, 0, "a new key"},
		{[]string{"lottery", "shop"}, 1, "has no lottery"},
		{[]string{"delete", "fair"}, 0, "fair is deleted"},
		{[]string{"show", "fair", "--json"}, 1, "no such room"},
	}
	for _, step := range steps {
		output, code := run(t, append(append([]string{"room"}, step.args...), at...)...)
		if code != step.code || !strings.Contains(output, step.want) {
			t.Errorf("%v: code %d\n%s\nwant %d, %q", step.args, code, output, step.code, step.want)
		}
	}
	output, code := run(t, "room", "list", "--server", "http://127.0.0.1:1")
	if code != 1 || !strings.Contains(output, "no server at http://127.0.0.1:1") {
		t.Errorf("without a server: code %d, %s", code, output)
	}
}

// Participants can verify a lottery.
func TestRoomLotteryCommand(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for wait := 3 * time.Second; !s.lotteryOpensIn(fmt.Sprint("sale-", wait), wait); wait *= 2 {
		t.Logf("the room opens before it is looked at: twice as late")
	}
}

// lotteryOpensIn returns false if the room opened before its visitor could see the commitment.
func (s *server) lotteryOpensIn(name string, wait time.Duration) (early bool) {
	t := s.t
	t.Helper()
	at := []string{"--server", "http://" + s.addr}
	opens := time.Now().Add(wait)
	if output, code := run(t, append([]string{"room", "create", name, "--capacity", "1", "--method", "lottery", "--opens-at", opens.UTC().Format(time.RFC3339Nano)}, at...)...); code != 0 {
		t.Fatal(output)
	}
	v := s.enter(name, "", http.StatusCreated)
	before, code := run(t, append([]string{"room", "lottery", name}, at...)...)
	lines := strings.Fields(before)
	if code != 0 || len(lines) < 2 || !strings.Contains(before, "shown when the room opens") {
		if time.Now().After(opens) {
			return false
		}
		t.Fatalf("before the opening: %d %s", code, before)
	}
	commitment := lines[1]
	until.True(t, "the seed is shown and verified", func() bool {
		output, code := run(t, append([]string{"room", "lottery", name, "--commitment", commitment, "--ticket", v.Ticket}, at...)...)
		return code == 0 && strings.Contains(output, "verified") && strings.Contains(output, "draw")
	})
	wrong := strings.Repeat("0", len(commitment))
	if output, code := run(t, append([]string{"room", "lottery", name, "--commitment", wrong}, at...)...); code != 1 || !strings.Contains(output, "not the one of this commitment") {
		t.Errorf("another commitment: %d %s", code, output)
	}
	return true
}
