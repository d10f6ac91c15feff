//go:build long

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// mostClicks is how many a task may take, from the overview on.
const mostClicks = 4

// task is one of docs/dashboard.md.
type task struct {
	// page does it on the dashboard.
	page func(w *walk)
	// before returns an error until the task can be done; nil: it can.
	before func(p *practice) error
	// done returns an error until it is done; where it changes nothing, says are texts that the page and the command show.
	done func(p *practice) error
	says []string
	// nodes is how many the server has; 0 for one.
	nodes int
}

// practice is a server with what the tasks are about.
type practice struct {
	*server
	// waiting and failed are actions.
	waiting, failed string
}

var tasks = map[string]task{
	"See why an action waits": {
		page: func(w *walk) { w.click("Bulk", w.p.waiting) }, says: []string{"no worker asks for jobs"},
		before: func(p *practice) error { return p.has("/v1/actions/"+p.waiting+"/jobs/0", `"no_worker"`) },
	},
	"See a tenant's failed jobs": {
		page: func(w *walk) { w.click("Bulk", "Dead letters").fill("tenant", "acme").enter("Filter") }, says: []string{"500"},
	},
	"Run the failures of an action again": {
		page: func(w *walk) {
			w.click("Bulk", "Dead letters", "Run the failures again "+w.p.failed, "Run the failures again")
		}, done: (*practice).replayed,
	},
	"Run only the 5xx failures of yesterday again": {
		page: func(w *walk) {
			w.click("Bulk", "Dead letters").fill("cause", "5xx").fill("since", day(0)).fill("until", day(1)).enter("Filter")
			w.click("Run all failures that match again", "Run all failures that match again")
			until.Succeeds(w.t, "the failures of today run again", w.p.replayed) // the command is about yesterday, when there was no server
		},
	},
	"Stop the jobs of an action": {
		page: func(w *walk) { w.click("Bulk", w.p.waiting, "Cancel the jobs", "Cancel the jobs") },
		done: func(p *practice) error { return p.has("/v1/actions/"+p.waiting, `"status":"CANCELED"`) },
	},
	"Run a schedule now": {
		page: func(w *walk) { w.click("Bulk", "Schedules", "Run now nightly", "Run now") },
		done: func(p *practice) error { return p.has("/v1/schedules/nightly", `"last_action":"`) },
	},
	"Double the capacity of a room": {
		page: func(w *walk) {
			w.click("Rooms", "shop").fill("value", "400").click("Change capacity", "Change capacity")
		},
		done: func(p *practice) error { return p.has("/v1/rooms/shop", `"capacity":400`) },
	},
	"Let a group that is stuck skip to the end": {
		page: func(w *walk) {
			w.open(http.MethodGet, "/ui/topics/group?name=billing", "") // the link of the overview's line, which is there when a lag has grown for a minute
			w.clicks += 2                                               // that line, and the choice of the end
			w.fill("topic", "orders").fill("to", "end").click("Preview", "Reset the group")
		},
		done: func(p *practice) error {
			if out := p.command("sluice group describe billing --json"); !strings.Contains(out, `"lag":0,`) {
				return fmt.Errorf("the group is at %s", out)
			}
			return nil
		},
	},
	"Empty a node before maintenance": {
		page:  func(w *walk) { w.click("Cluster", "Drain 2", "Drain") },
		done:  func(p *practice) error { return p.has("/v1/cluster", `"draining":true`) },
		nodes: 3,
	},
	"Revoke a token that has leaked": {
		page: func(w *walk) { w.click("Access", "Revoke mailer", "Revoke") },
		done: func(p *practice) error {
			if list := string(p.as(adminToken, "GET", "/v1/tokens", "").body); strings.Contains(list, `"mailer"`) {
				return fmt.Errorf("the token is there: %s", list)
			}
			return nil
		},
	},
}

// day returns a time as a form has it: the beginning of today in UTC, or of a day after it.
func day(later int) string {
	return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, later).Format("2006-01-02T15:04")
}

// Each task of docs/dashboard.md is done from the page in at most four clicks, and from the terminal by the commands as they are written.
func TestTasks(t *testing.T) {
	t.Parallel()
	rows := taskRows(t)
	if len(rows) != len(tasks) {
		t.Errorf("docs/dashboard.md has %d tasks, and this test %d", len(rows), len(tasks))
	}
	for name, commands := range rows {
		of, known := tasks[name]
		if !known {
			t.Errorf("nothing does %q", name)
			continue
		}
		do := func(how string, do func(t *testing.T, p *practice) string) {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				p := newPractice(t, of.nodes)
				if of.before != nil {
					until.Succeeds(t, "before "+name, func() error { return of.before(p) })
				}
				shown := do(t, p)
				for _, text := range of.says {
					if !strings.Contains(shown, text) {
						t.Errorf("want %q in\n%s", text, shown)
					}
				}
				if of.done != nil {
					until.Succeeds(t, name, func() error { return of.done(p) })
				}
			})
		}
		do("on the page", func(t *testing.T, p *practice) string {
			w := &walk{t: t, p: p}
			w.open(http.MethodGet, "/ui/", "")
			if of.page(w); w.clicks > mostClicks {
				t.Errorf("it takes %d clicks, want at most %d", w.clicks, mostClicks)
			}
			return w.text
		})
		do("in the terminal", func(_ *testing.T, p *practice) (shown string) {
			for _, command := range commands {
				shown += p.command(strings.ReplaceAll(command, "ACTION", p.actionOf(command)))
			}
			return shown
		})
	}
}

var code = regexp.MustCompile("`(sluice [^`]+)`")

// taskRows returns the commands of each task in docs/dashboard.md.
func taskRows(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Ten tasks")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || strings.HasPrefix(line, "| task") {
			continue
		}
		for _, command := range code.FindAllStringSubmatch(cells[2], -1) {
			name := strings.TrimPrefix(cells[0], "| ")
			rows[name] = append(rows[name], command[1])
		}
	}
	return rows
}

// newPractice starts a server, or so many nodes, with what the tasks are about.
func newPractice(t *testing.T, nodes int) *practice {
	t.Helper()
	if nodes > 0 {
		return &practice{server: startNodes(t, nodes).all[0]}
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(target.Close)
	s := withAccounts(t, "--bulk-webhook-allow", "127.0.0.0/8")
	s.start()
	p := &practice{server: s, waiting: "invoices", failed: "prices"}
	for id, calls := range map[string]string{p.waiting: `"type":"mail"`, p.failed: `"max_attempts":1,"target":{"url":"` + target.URL + `"}`} {
		p.made("POST", "/v1/actions", `{"id":"`+id+`","tenant":"acme",`+calls+`}`)
		if a, err := p.do("POST", "/v1/actions/"+id+"/jobs", "application/x-ndjson", []byte("1\n2\n"), "Authorization", "Bearer "+adminToken); err != nil || a.status != http.StatusOK {
			t.Fatalf("jobs of %s: %v %s", id, err, a.body)
		}
		p.made("POST", "/v1/actions/"+id+"/seal", `{"total":2}`)
	}
	p.made("PUT", "/v1/schedules/nightly", `{"cron":"0 3 * * *","tenant":"acme","type":"mail","jobs":[1]}`)
	p.made("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":200}`)
	p.token("mailer", "worker")
	p.command("sluice topic create orders --partitions 1")
	p.command("seq 9 | sluice topic produce orders")
	p.command("sluice group reset billing --topic orders --to start")
	until.Succeeds(t, "the jobs have failed", func() error { return p.has("/v1/actions/"+p.failed, `"failed":2`, `"finished_at":"`) })
	return p
}

// made makes a change that succeeds.
func (p *practice) made(method, path, body string) {
	p.t.Helper()
	if a := p.as(adminToken, method, path, body); a.status >= 300 {
		p.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
}

// has returns an error unless an answer has the texts.
func (p *practice) has(path string, texts ...string) error {
	answer := string(p.as(adminToken, "GET", path, "").body)
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			return fmt.Errorf("%s has no %s: %s", path, text, answer)
		}
	}
	return nil
}

// replayed returns an error until the failures of an action run again.
func (p *practice) replayed() error { return p.has("/v1/actions/"+p.failed+".replay-1", `"total":2`) }

// actionOf returns the action that a command is about.
func (p *practice) actionOf(command string) string {
	if strings.Contains(command, "replay") {
		return p.failed
	}
	return p.waiting
}

// command runs a line of a shell.
func (p *practice) command(line string) string {
	p.t.Helper()
	command := exec.CommandContext(p.t.Context(), "bash", "-c", line)
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"),
		"SLUICE_SERVER="+p.url(""), "SLUICE_BROKERS="+p.kafka, "SLUICE_TOKEN="+adminToken)
	out, err := command.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// walk is somebody at the dashboard.
type walk struct {
	t      *testing.T
	p      *practice
	page   *html.Node
	text   string
	filled map[string]string
	clicks int
}

// open shows a page, or that to which the answer to a form leads.
func (w *walk) open(method, target, form string) {
	w.t.Helper()
	a, err := w.p.do(method, target, "application/x-www-form-urlencoded", []byte(form), "Cookie", "sluice-token="+adminToken, "Accept-Language", "en")
	if err != nil || a.status != http.StatusOK {
		w.t.Fatalf("%s %s %s: %d %v\n%s", method, target, form, a.status, err, a.body)
	}
	if w.page, err = html.Parse(strings.NewReader(string(a.body))); err != nil {
		w.t.Fatal(err)
	}
	w.text, w.filled = textOf(w.page), map[string]string{}
}

// click clicks links and buttons by their texts.
func (w *walk) click(texts ...string) *walk {
	w.t.Helper()
	for _, text := range texts {
		w.clicks++
		w.enter(text)
	}
	return w
}

// fill writes into a field, or chooses.
func (w *walk) fill(name, value string) *walk {
	w.filled[name] = value
	return w
}

// enter follows a link, or sends the form of a button, as the key Enter does.
func (w *walk) enter(text string) {
	w.t.Helper()
	for n := range w.page.Descendants() {
		switch {
		case n.Data == "a" && textOf(n) == text:
			w.open(http.MethodGet, attribute(n, "href"), "")
			return
		case n.Data == "button" && textOf(n) == text:
			w.send(n)
			return
		}
	}
	w.t.Fatalf("there is no link or button %q on the page:\n%s", text, w.text)
}

// send sends the form of a button.
func (w *walk) send(button *html.Node) {
	w.t.Helper()
	form := button.Parent
	for form.Data != "form" {
		form = form.Parent
	}
	values := url.Values{}
	for n := range form.Descendants() {
		if name := attribute(n, "name"); name != "" {
			values.Set(name, attribute(n, "value"))
			if filled, is := w.filled[name]; is {
				values.Set(name, filled)
			}
		}
	}
	if strings.EqualFold(attribute(form, "method"), http.MethodPost) {
		w.open(http.MethodPost, attribute(form, "action"), values.Encode())
		return
	}
	w.open(http.MethodGet, attribute(form, "action")+"?"+values.Encode(), "")
}

func attribute(n *html.Node, name string) string {
	at := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
	if at < 0 {
		return ""
	}
	return n.Attr[at].Val
}

// textOf returns the words of a node.
func textOf(n *html.Node) string {
	var words []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			words = append(words, strings.Fields(d.Data)...)
		}
	}
	return strings.Join(words, " ")
}
