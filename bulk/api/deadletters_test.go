package api_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
)

// failed makes a finished action whose jobs at these indexes failed.
func (f *fixture) failed(id string, indexes ...int64) {
	f.Helper()
	f.create(id)
	f.engine.edit(id, func(a *fakeAction) {
		a.Status, a.Failed, a.FinishedAt = bulk.Completed, int64(len(indexes)), time.Now()
		for _, i := range indexes {
			a.letters = append(a.letters, bulk.DeadLetter{
				Action: id, Index: i, Payload: []byte(fmt.Sprintf(`{"n":"%d, \"x\""}`, i)), Error: "no, \"really\"\nnot", Attempts: 4, FailedAt: start,
			})
		}
	})
}

func TestFailuresJSON(t *testing.T) {
	f := newFixture(t)
	f.failed("a", 1, 3, 5)
	a := f.do(200, "GET", "/v1/actions/a/failures?from=2&limit=1", "")
	want := `{"failures":[{"id":"a-3","action":"a","index":3,"payload":{"n":"3, \"x\""},"error":"no, \"really\"\nnot","cause":"","attempts":4,"failed_at":"2026-01-02T02:04:05Z"}],"next":4}`
	if got := strings.TrimSpace(a.Body.String()); got != want {
		t.Fatalf("got %s; want %s", got, want)
	}
	var page wire.Failures
	f.read(f.do(200, "GET", "/v1/actions/a/failures", ""), &page)
	if len(page.Failures) != 3 || page.Next != nil {
		t.Fatalf("%+v", page)
	}
	if a := f.do(200, "GET", "/v1/actions/a/failures?from=6", ""); strings.TrimSpace(a.Body.String()) != `{"failures":[],"next":null}` {
		t.Fatal(a.Body)
	}
	for _, query := range []string{"?from=-1", "?limit=0", "?limit=1001", "?format=xml"} {
		f.do(422, "GET", "/v1/actions/a/failures"+query, "")
	}
}

func TestFailuresCSV(t *testing.T) {
	f := newFixture(t)
	indexes := make([]int64, 1200) // More than two pages.
	for i := range indexes {
		indexes[i] = int64(2 * i)
	}
	f.failed("a", indexes...)
	asked := map[string][]string{
		"/v1/actions/a/failures?format=csv&from=2": {"Accept", "application/json"},
		"/v1/actions/a/failures?from=1":            {"Accept", "text/csv"},
		"/v1/actions/a/failures?limit=1&from=2":    {"Accept", "application/json;q=0.5, text/csv"},
	}
	for target, headers := range asked {
		a := f.do(200, "GET", target, "", headers...)
		if !strings.HasPrefix(a.Header().Get("Content-Type"), "text/csv") {
			t.Fatal(target, a.Header())
		}
		rows, err := csv.NewReader(a.Body).ReadAll()
		if err != nil || len(rows) != 1200 {
			t.Fatal(target, len(rows), err)
		}
		if want := []string{"index", "id", "error", "attempts", "failed_at", "payload"}; !slices.Equal(rows[0], want) {
			t.Fatal(rows[0])
		}
		if want := []string{"2398", "a-2398", "no, \"really\"\nnot", "4", "2026-01-02T02:04:05Z", `{"n":"2398, \"x\""}`}; !slices.Equal(rows[1199], want) {
			t.Fatal(rows[1199])
		}
	}
	if a := f.do(200, "GET", "/v1/actions/a/failures?format=json", "", "Accept", "text/csv"); a.Header().Get("Content-Type") != "application/json" {
		t.Fatal(a.Header())
	}
}

// TestFailuresOfManyBytes: a page ends where its payloads are many bytes, and the next one
// continues there.
func TestFailuresOfManyBytes(t *testing.T) {
	f := newFixture(t)
	const jobs = 20
	f.failed("a", 0)
	f.engine.edit("a", func(a *fakeAction) {
		a.letters = nil
		for i := range int64(jobs) {
			a.letters = append(a.letters, bulk.DeadLetter{Action: "a", Index: i, Payload: []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)})
		}
	})
	follow := func(name string, ask func(after string) (letters []wire.DeadLetter, next string)) {
		var got []int64
		pages := 0
		for after := "0"; after != ""; pages++ {
			var letters []wire.DeadLetter
			if letters, after = ask(after); len(letters) > 9 {
				t.Fatalf("%s: a page has %d MiB", name, len(letters))
			}
			for _, letter := range letters {
				got = append(got, letter.Index)
			}
		}
		if len(got) != jobs || !slices.IsSorted(got) || pages != 3 {
			t.Errorf("%s: %d pages: %v", name, pages, got)
		}
	}
	follow("failures", func(from string) ([]wire.DeadLetter, string) {
		var page wire.Failures
		f.read(f.do(200, "GET", "/v1/actions/a/failures?limit=1000&from="+from, ""), &page)
		if page.Next == nil {
			return page.Failures, ""
		}
		return page.Failures, strconv.FormatInt(*page.Next, 10)
	})
	follow("dead letters", func(after string) ([]wire.DeadLetter, string) {
		var page wire.DeadLetters
		f.read(f.do(200, "GET", "/v1/dead-letters?limit=1000&after="+strings.TrimPrefix(after, "0"), ""), &page)
		if page.Next == nil {
			return page.DeadLetters, ""
		}
		return page.DeadLetters, *page.Next
	})
	a := f.do(200, "GET", "/v1/actions/a/failures?format=csv", "")
	if rows, err := csv.NewReader(a.Body).ReadAll(); err != nil || len(rows) != jobs+1 {
		t.Error(len(rows), err)
	}
}

// TestFailuresCSVCut: a client must not take a part for the whole.
func TestFailuresCSVCut(t *testing.T) {
	f := newFixture(t)
	f.failed("a", make([]int64, 1000)...)
	w := &failAfter{ResponseRecorder: httptest.NewRecorder(), do: func() { f.engine.fail["DeadLetters"] = errors.New("a bad sector") }}
	defer func() {
		if cut, _ := recover().(error); !errors.Is(cut, http.ErrAbortHandler) || !strings.Contains(f.log.String(), "a bad sector") {
			t.Fatal("the answer was not cut off, or the reason not logged:", f.log)
		}
	}()
	f.handler.ServeHTTP(w, f.request("GET", "/v1/actions/a/failures?format=csv", ""))
}

// failAfter calls do with the first write.
type failAfter struct {
	*httptest.ResponseRecorder
	do func()
}

func (w *failAfter) Write(p []byte) (int, error) {
	w.do()
	return w.ResponseRecorder.Write(p)
}

func TestDeadLetters(t *testing.T) {
	f := newFixture(t)
	f.failed("a", 0, 1)
	f.create("clean")
	f.failed("b", 7)
	f.failed("c", 1, 2, 3)
	f.engine.edit("c", func(a *fakeAction) { a.Tenant = "other" })
	tests := []struct {
		query string
		want  []string
	}{
		{"?limit=1", []string{"a-0", "a-1", "b-7", "c-1", "c-2", "c-3"}},
		{"?limit=2", []string{"a-0", "a-1", "b-7", "c-1", "c-2", "c-3"}},
		{"?limit=1000", []string{"a-0", "a-1", "b-7", "c-1", "c-2", "c-3"}},
		{"?limit=1&tenant=acme", []string{"a-0", "a-1", "b-7"}},
		{"?limit=2&action=c", []string{"c-1", "c-2", "c-3"}},
		{"?limit=2&action=clean", nil},
		{"?limit=1&type=echo&error=REALLY&since=2026-01-02T02:04:05Z&until=2026-01-02T02:04:06Z", []string{"a-0", "a-1", "b-7", "c-1", "c-2", "c-3"}},
		{"?cause=5xx", nil}, {"?target=shop", nil}, {"?until=2026-01-02T02:04:05Z", nil},
	}
	for _, test := range tests {
		var got []string
		for after := ""; ; {
			var page wire.DeadLetters
			f.read(f.do(200, "GET", "/v1/dead-letters"+test.query+"&after="+url.QueryEscape(after), ""), &page)
			for _, letter := range page.DeadLetters {
				got = append(got, letter.ID)
			}
			if page.Next == nil {
				break
			}
			after = *page.Next
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q; want %q", test.query, got, test.want)
		}
	}
	f.do(404, "GET", "/v1/dead-letters?action=none", "")
	for _, query := range []string{"after=x", "cause=56x", "since=yesterday", "since=2026-01-02T02:04:05Z&until=2026-01-02T02:04:05Z"} {
		f.do(422, "GET", "/v1/dead-letters?"+query, "")
	}
	f.do(422, "GET", "/v1/dead-letters?after=a-1&action=b", "")
	// The action of the cursor may have been forgotten.
	f.do(200, "GET", "/v1/dead-letters?after=gone-1", "")
}

// TestDeadLettersOfManyActions: one page looks at a bounded number of actions.
func TestDeadLettersOfManyActions(t *testing.T) {
	f := newFixture(t)
	for i := range engine.MaxLetterActions {
		f.engine.actions = append(f.engine.actions, &fakeAction{Action: bulk.Action{Spec: bulk.Spec{ID: fmt.Sprint("clean", i)}}})
	}
	f.failed("a", 0)
	var page wire.DeadLetters
	f.read(f.do(200, "GET", "/v1/dead-letters", ""), &page)
	if len(page.DeadLetters) != 0 || page.Next == nil {
		t.Fatalf("%+v", page)
	}
	f.read(f.do(200, "GET", "/v1/dead-letters?after="+*page.Next, ""), &page)
	if len(page.DeadLetters) != 1 || page.Next != nil {
		t.Fatalf("%+v", page)
	}
}

func TestReplay(t *testing.T) {
	f := newFixture(t)
	f.failed("a", 0)
	a := f.do(201, "POST", "/v1/dead-letters/replay", `{"action":"a"}`)
	if got := strings.TrimSpace(a.Body.String()); got != `{"id":"made-1","status":"CREATED"}` || a.Header().Get("Location") != "/v1/actions/made-1" {
		t.Fatal(got, a.Header())
	}
	f.failed("some", 0)
	f.do(201, "POST", "/v1/dead-letters/replay", `{"action":"some","cause":"5xx","since":"2026-01-02T02:04:05Z"}`)
	last := f.engine.actions[len(f.engine.actions)-1]
	if last.ReplayOf != "some" || last.ReplayPart.Cause != "5xx" || !last.ReplayPart.Since.Equal(start) {
		t.Errorf("the replay of some is %+v, of %+v", last.Spec, last.ReplayPart)
	}
	f.do(422, "POST", "/v1/dead-letters/replay", `{"action":"some","cause":"56x"}`)
	f.create("b")
	if a := f.do(409, "POST", "/v1/dead-letters/replay", `{"action":"b"}`); a.problem.Code != wire.CodeStatus {
		t.Fatal(a.problem)
	}
	f.do(404, "POST", "/v1/dead-letters/replay", `{"action":"none"}`)
	f.do(422, "POST", "/v1/dead-letters/replay", `{}`)
}
