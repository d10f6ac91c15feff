package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

const ndjson, commas = "application/x-ndjson", "text/csv"

func packed(text string) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func TestUpload(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	steps := []struct {
		offset, kind, body string
		received           int
	}{
		{"", ndjson, "{\"n\":1}\r\n\n2\n", 2},
		{"0", ndjson, "{\"n\":1}\n2\n3\n", 3},
		{"3", commas, "zip,city\n00501,\"Holts\nville\"\n", 4},
		{"4", commas + "; charset=UTF-8; header=present", "zip\n00544", 5},
		{"5", ndjson, "", 5},
		{"5", commas, "zip\n", 5},
		{"2", ndjson, "3", 5},
	}
	for _, step := range steps {
		headers := []string{"Content-Type", step.kind}
		if step.offset != "" {
			headers = append(headers, "Upload-Offset", step.offset)
		}
		a := f.do(200, "POST", "/v1/actions/a/jobs", step.body, headers...)
		if got := strings.TrimSpace(a.Body.String()); got != fmt.Sprintf(`{"received":%d}`, step.received) {
			t.Fatalf("%+v: %s", step, got)
		}
	}
	f.do(200, "POST", "/v1/actions/a/jobs", packed("6\n"), "Content-Type", ndjson, "Content-Encoding", "gzip", "Upload-Offset", "5")
	want := []string{`{"n":1}`, "2", "3", `{"zip":"00501","city":"Holts\nville"}`, `{"zip":"00544"}`, "6"}
	if got := f.engine.actions[0].payloads; !slices.Equal(got, want) {
		t.Fatalf("got %q; want %q", got, want)
	}
}

func TestUploadRefused(t *testing.T) {
	tests := []struct {
		name, body string
		headers    []string
		status     int
		code       string
		detail     string
		line       int64
	}{
		{"no type", "1", []string{"Content-Type", ""}, 415, wire.CodeMediaType, "want application/x-ndjson or text/csv", 0},
		{"JSON", "1", []string{"Content-Type", "application/json"}, 415, wire.CodeMediaType, `"application/json"`, 0},
		{"a charset", "1", []string{"Content-Type", "text/csv; charset=latin1"}, 415, wire.CodeMediaType, "UTF-8", 0},
		{"an encoding", "1", []string{"Content-Encoding", "br"}, 415, wire.CodeMediaType, "want gzip", 0},
		{"no gzip", "1", []string{"Content-Encoding", "gzip"}, 400, wire.CodeInvalid, "cannot be read", 0},
		{"a cut gzip", packed("1\n2\n3\n")[:20], []string{"Content-Encoding", "gzip"}, 400, wire.CodeInvalid, "cannot be read", 0},
		{"no offset", "1", []string{"Upload-Offset", ""}, 400, wire.CodeInvalid, "Upload-Offset: send how many jobs were sent before this chunk; 2 were received", 0},
		{"no number", "1", []string{"Upload-Offset", "two"}, 400, wire.CodeInvalid, `Upload-Offset: "two"`, 0},
		{"a negative offset", "1", []string{"Upload-Offset", "-1"}, 400, wire.CodeInvalid, "Upload-Offset", 0},
		{"beyond", "1", []string{"Upload-Offset", "3"}, 409, wire.CodeOffset, "beyond the 2 jobs received", 0},
		{"a bad line", "1\n\n{]\n4", nil, 400, wire.CodeBadLine, "line 3: want one JSON value", 3},
		{"a bad row", "a,b\n1,2\n3\n", []string{"Content-Type", commas}, 400, wire.CodeBadLine, "line 3: want 2 values", 3},
		{"no header", "", []string{"Content-Type", commas}, 400, wire.CodeBadLine, "line 1: want a header", 1},
		{"a bad line far off", strings.Repeat("1\n", 25_000) + "x", nil, 400, wire.CodeBadLine, "line 25001", 25_001},
		{"too large", strings.Repeat("1\n", api.MaxChunk/2) + "1", nil, 413, wire.CodeTooLarge, "33554432 bytes", 0},
		{"too large unpacked", strings.Repeat(packed(strings.Repeat("1\n", 1<<19)), api.MaxChunk>>20) + packed("1"), []string{"Content-Encoding", "gzip"}, 413, wire.CodeTooLarge, "33554432 bytes", 0},
	}
	shared := newFixture(t)
	shared.create("a")
	shared.upload("a", "1", "2")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := shared.in(t)
			headers := append([]string{"Content-Type", ndjson, "Upload-Offset", "2"}, test.headers...)
			a := f.do(test.status, "POST", "/v1/actions/a/jobs", test.body, headers...)
			if a.problem.Code != test.code || !strings.Contains(a.problem.Detail, test.detail) || a.problem.Line != test.line {
				t.Fatalf("%s", a.Body)
			}
			if test.code == wire.CodeOffset && *a.problem.Received != 2 {
				t.Fatalf("%s", a.Body)
			}
			if got := len(f.engine.actions[0].payloads); got != 2 {
				t.Fatalf("%d jobs were taken", got-2)
			}
		})
	}
}

func TestUploadToSealedAction(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	f.upload("a", "1")
	f.do(200, "POST", "/v1/actions/a/seal", `{"total":1}`)
	a := f.do(409, "POST", "/v1/actions/a/jobs", "2", "Content-Type", ndjson, "Upload-Offset", "1")
	if a.problem.Code != wire.CodeStatus || *a.problem.Received != 1 || !strings.Contains(a.problem.Detail, "DISPATCHED") {
		t.Fatalf("%s", a.Body)
	}
}

// TestUploadRaces: what was refused early for others can also come from the engine.
func TestUploadRaces(t *testing.T) {
	for err, code := range map[error]string{
		&bulk.OffsetError{Received: 1}:                                             wire.CodeOffset,
		&bulk.TransitionError{ID: "a", From: bulk.Dispatched, Why: "it is sealed"}: wire.CodeStatus,
	} {
		f := newFixture(t)
		f.create("a")
		f.engine.fail["Append"] = err
		if a := f.do(409, "POST", "/v1/actions/a/jobs", "1", "Content-Type", ndjson); a.problem.Code != code {
			t.Errorf("%v: %s", err, a.Body)
		}
	}
}

// TestUploadInBatches: a chunk beyond one batch is whole and in order, and when
// the store becomes full in between, the client learns where to go on.
func TestUploadInBatches(t *testing.T) {
	lines, rows := make([]string, 25_000), make([]string, 25_000)
	for i := range lines {
		lines[i] = strconv.Itoa(i)
		rows[i] = fmt.Sprintf(`{"n":"%d"}`, i)
	}
	f := newFixture(t)
	f.create("a")
	f.upload("a", lines...)
	if got := f.engine.actions[0].payloads; !slices.Equal(got, lines) || f.engine.appends != 3 {
		t.Fatalf("%d jobs in %d batches", len(got), f.engine.appends)
	}
	big := `"` + strings.Repeat("x", 1<<20-2) + `"`
	f.create("b")
	f.upload("b", slices.Repeat([]string{big}, 5)...)
	if got := f.engine.actions[1].payloads; len(got) != 5 || f.engine.appends != 5 {
		t.Fatalf("%d jobs, %d batches", len(got), f.engine.appends)
	}
	for _, c := range []struct {
		kind, body string
		want       []string
	}{
		{ndjson, "\ufeff" + strings.Join(lines, " \r\n\n"), lines},
		{ndjson, strings.Join(lines[:10_000], "\n") + "\n\n", lines[:10_000]},
		{commas, "n\n" + strings.Join(lines, "\n"), rows},
	} {
		f = newFixture(t)
		f.create("a")
		f.do(200, "POST", "/v1/actions/a/jobs", c.body, "Content-Type", c.kind)
		if got := f.engine.actions[0].payloads; !slices.Equal(got, c.want) || f.engine.appends != (len(got)+9_999)/10_000 {
			t.Fatalf("%s: %d jobs in %d batches", c.kind, len(got), f.engine.appends)
		}
	}

	f = newFixture(t)
	f.create("a")
	f.engine.full = 1
	a := f.do(507, "POST", "/v1/actions/a/jobs", strings.Join(lines, "\n"), "Content-Type", ndjson)
	if a.problem.Code != wire.CodeFull || *a.problem.Received != 10_000 {
		t.Fatalf("%s", a.Body)
	}
	f.engine.full = 0
	rest := strings.Join(lines[10_000:], "\n")
	f.do(200, "POST", "/v1/actions/a/jobs", rest, "Content-Type", ndjson, "Upload-Offset", "10000")
	if got := f.engine.actions[0].payloads; !slices.Equal(got, lines) {
		t.Fatalf("%d jobs", len(got))
	}
}

// TestPayloadsOfAChunkAreBounded: rows of CSV repeat the header, so a chunk of 1 MiB can ask to
// store any multiple of that.
func TestPayloadsOfAChunkAreBounded(t *testing.T) {
	const payload, most = 1 << 20, 1 << 30
	column := strings.Repeat("c", payload-len(`{"":""}`))
	rows := func(n int) string { return column + "\n" + strings.Repeat("\"\"\n", n) }
	f := newFixture(t)
	f.create("a")
	a := f.do(413, "POST", "/v1/actions/a/jobs", rows(most/payload+1), "Content-Type", commas)
	if a.problem.Code != wire.CodeTooLarge || !strings.Contains(a.problem.Detail, "1073741824 bytes") || !strings.Contains(a.problem.Detail, "fewer rows") {
		t.Fatalf("%s", a.Body)
	}
	if f.engine.appends != 0 {
		t.Fatalf("%d batches were taken of a chunk that was refused", f.engine.appends)
	}
	f.handler = api.New(appended{f.engine})
	f.do(200, "POST", "/v1/actions/a/jobs", rows(most/payload), "Content-Type", commas)
}

// leaving is an engine whose client goes away with its first batch.
type leaving struct {
	*fakeEngine
	leave func()
}

func (l leaving) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	l.leave()
	return l.fakeEngine.Append(ctx, id, offset, payloads)
}

// TestUploadEndsWithItsRequest: a chunk is neither parsed nor stored further for a client that has
// gone.
func TestUploadEndsWithItsRequest(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	ctx, cancel := context.WithCancel(t.Context())
	f.handler = api.New(leaving{f.engine, cancel})
	large := "n\n" + strings.Repeat("1\n", 25_000)
	f.send(503, f.request("POST", "/v1/actions/a/jobs", large, "Content-Type", commas).WithContext(ctx))
	if got := len(f.engine.actions[0].payloads); got != 10_000 {
		t.Errorf("%d jobs were stored, want the batch with which the client left", got)
	}
	// A bad line at the end would show that all was parsed.
	bad := f.request("POST", "/v1/actions/a/jobs", large+"1,2", "Content-Type", commas, "Upload-Offset", "0")
	f.send(503, bad.WithContext(ctx))
}

// TestStalledUploads: bodies that do not arrive keep no other upload waiting.
func TestStalledUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range 20 {
			f.create(fmt.Sprint("a", i))
		}
		var working sync.WaitGroup
		var bodies []*io.PipeWriter
		for i := range 20 {
			body, sender := io.Pipe()
			bodies = append(bodies, sender)
			working.Go(func() {
				r := httptest.NewRequest(http.MethodPost, fmt.Sprintf("/v1/actions/a%d/jobs", i), body)
				r.Header.Set("Content-Type", ndjson)
				w := httptest.NewRecorder()
				if f.handler.ServeHTTP(w, r); w.Code != 200 {
					t.Errorf("an upload that arrived late: %d %s", w.Code, w.Body)
				}
			})
			_, _ = io.WriteString(sender, "1\n")
		}
		synctest.Wait()
		began := time.Now()
		f.create("b")
		f.upload("b", "1")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("an upload beside %d that stall waited %v", len(bodies), waited)
		}
		for _, sender := range bodies {
			_ = sender.Close()
		}
		working.Wait()
	})
}

// TestUploadsWaitForTheirTurn: eight are stored at a time; the ninth waits 10 s.
func TestUploadsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range 10 {
			f.create(fmt.Sprint("a", i))
		}
		f.engine.stall = make(chan struct{})
		send := func(i int) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, fmt.Sprintf("/v1/actions/a%d/jobs", i), strings.NewReader("1"))
			r.Header.Set("Content-Type", ndjson)
			f.handler.ServeHTTP(w, r)
			return w
		}
		var working sync.WaitGroup
		statuses := make([]int, 9)
		for i := range 8 {
			working.Go(func() { statuses[i] = send(i).Code })
		}
		synctest.Wait()
		began := time.Now()
		refused := send(8)
		if refused.Code != 503 || refused.Header().Get("Retry-After") == "" || !strings.Contains(refused.Body.String(), `"code":"busy"`) || time.Since(began) != 10*time.Second {
			t.Fatal(refused.Code, refused.Body, time.Since(began))
		}
		working.Go(func() { statuses[8] = send(9).Code })
		synctest.Wait()
		close(f.engine.stall)
		working.Wait()
		if slices.ContainsFunc(statuses, func(status int) bool { return status != 200 }) {
			t.Fatal(statuses)
		}
	})
}

// TestConcurrentUploads sends overlapping chunks of one action from several
// clients through a real server: each job is there once, in its place.
func TestConcurrentUploads(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	server := httptest.NewServer(f.handler)
	defer server.Close()
	const jobs = 2000
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for at := int64(0); at < jobs; {
				size := 1 + rand.Int64N(200)
				var chunk strings.Builder
				for i := at; i < min(at+size, jobs); i++ {
					fmt.Fprintf(&chunk, "%d\n", i)
				}
				r, _ := http.NewRequest(http.MethodPost, server.URL+"/v1/actions/a/jobs", strings.NewReader(chunk.String()))
				r.Header.Set("Content-Type", ndjson)
				r.Header.Set("Upload-Offset", strconv.FormatInt(at, 10))
				response, err := server.Client().Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK {
					t.Error(response.Status)
					return
				}
				at += size
			}
		})
	}
	working.Wait()
	for i, payload := range f.engine.actions[0].payloads {
		if payload != strconv.Itoa(i) {
			t.Fatalf("job %d is %s", i, payload)
		}
	}
	if got := len(f.engine.actions[0].payloads); got != jobs {
		t.Fatalf("%d jobs", got)
	}
}

func FuzzUpload(f *testing.F) {
	f.Add("1\n{}\n", "0", true)
	f.Add("a,b\n\"1\n\",2\n", "", false)
	f.Add("{\n", "-1", true)
	f.Add("\xff", "9223372036854775808", false)
	engine := newFakeEngine()
	handler := api.New(engine)
	f.Fuzz(func(t *testing.T, body, offset string, lines bool) {
		engine.actions = nil
		fixture := &fixture{T: t, engine: engine, handler: handler}
		if _, _, err := engine.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}); err != nil {
			t.Fatal(err)
		}
		r := fixture.request("POST", "/v1/actions/a/jobs", body, "Content-Type", map[bool]string{true: ndjson, false: commas}[lines])
		r.Header["Upload-Offset"] = []string{offset}
		w := httptest.NewRecorder()
		fixture.handler.ServeHTTP(w, r)
		taken := len(fixture.engine.actions[0].payloads)
		switch w.Code {
		case 200:
			if want := fmt.Sprintf("{\"received\":%d}\n", taken); w.Body.String() != want {
				t.Fatalf("%s; want %s", w.Body, want)
			}
		case 400, 409:
			if taken != 0 {
				t.Fatalf("%d jobs were taken of a chunk that was refused", taken)
			}
		default:
			t.Fatal(w.Code, w.Body)
		}
	})
}

// appended is an engine that only counts the jobs it is given.
type appended struct{ *fakeEngine }

func (appended) Append(_ context.Context, _ string, offset int64, payloads [][]byte) (int64, error) {
	return offset + int64(len(payloads)), nil
}

// BenchmarkUpload sends chunks of one batch, and of many.
func BenchmarkUpload(b *testing.B) {
	line := `{"zip":"00501","latitude":"40.922326","city":"Holtsville","state":"NY","note":"a line of some words"}` + "\n"
	const large = api.MaxChunk - 1<<10
	row := "00501,40.922326,-72.637078,Holtsville,NY,Suffolk\n"
	for name, chunk := range map[string]struct{ kind, body string }{
		"ndjson/one":  {ndjson, strings.Repeat(line, 9_000)},
		"ndjson/many": {ndjson, strings.Repeat(line, large/len(line))},
		"csv/many":    {commas, "zip_code,latitude,longitude,city,state,county\n" + strings.Repeat(row, large/len(row))},
	} {
		b.Run(name, func(b *testing.B) {
			engine := newFakeEngine()
			if _, _, err := engine.Create(b.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}); err != nil {
				b.Fatal(err)
			}
			handler := api.New(appended{engine})
			b.SetBytes(int64(len(chunk.body)))
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/actions/a/jobs", strings.NewReader(chunk.body))
				r.Header.Set("Content-Type", chunk.kind)
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, r); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
