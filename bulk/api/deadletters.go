package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/edge"
)

const (
	jsonType   = "application/json"
	failuresID = "list-failures"
)

func (s *server) registerDeadLetters() {
	const failed = "The failed jobs."
	edge.Register(s.part, edge.Operation{
		ID: failuresID, Route: "GET /v1/actions/{id}/failures", Summary: "The failed jobs of an action, by index",
		Description: "JSON in pages, each of at most 8 MiB of payloads and one more job; CSV, requested by Accept or format, all from the given index on, with the columns index, id, error, attempts, failed_at, payload.",
		Answers: []edge.Answer{
			{Status: http.StatusOK, Description: failed, Of: wire.Failures{}},
			{Status: http.StatusOK, Description: failed, Type: csvType},
		},
	}, s.failures)
	register(s, "list-dead-letters", "GET /v1/dead-letters", "The failed jobs of one action or of all", s.deadLetters)
	edge.Register(s.part, edge.Operation{
		ID: "replay-dead-letters", Route: "POST /v1/dead-letters/replay", Status: http.StatusCreated,
		Summary: "Run the failed jobs of a finished action, or of a stream, again, in a new action",
	}, s.replay)
}

type inFailures struct {
	ID     string `path:"id" doc:"The action's id."`
	From   int64  `query:"from" minimum:"0" doc:"The least index."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most jobs of a JSON page."`
	Format string `query:"format" enum:"json,csv" doc:"Overrides Accept."`
	Accept string `header:"Accept" hidden:"true"`
}

func (in *inFailures) csv() bool {
	if in.Format != "" {
		return in.Format == "csv"
	}
	return negotiation.SelectQValueFast(in.Accept, []string{jsonType, csvType}) == csvType
}

func (s *server) failures(ctx context.Context, in *inFailures) (*huma.StreamResponse, error) {
	first, err := s.engine.DeadLetters(ctx, in.ID, in.From, in.page()+1)
	if err != nil {
		return nil, refuse(in.ID, err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		_, w := humago.Unwrap(hctx)
		if in.csv() {
			s.failuresCSV(ctx, in, w, first)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(in.object(first))
	}}, nil
}

// page returns how many failures are read at one time.
func (in *inFailures) page() int {
	if in.csv() {
		return csvPage
	}
	return in.Limit
}

// object returns a page of the letters, of which there may be one more than fit. If their
// size has ended the page, there may be more.
func (in *inFailures) object(letters []bulk.DeadLetter) wire.Failures {
	page := wire.Failures{Failures: []wire.DeadLetter{}}
	for _, letter := range letters[:min(len(letters), in.Limit)] {
		page.Failures = append(page.Failures, deadLetter(letter))
	}
	if len(letters) > in.Limit {
		page.Next = &letters[in.Limit].Index
	} else if payloadBytes(letters) >= bulk.MaxPageBytes {
		next := letters[len(letters)-1].Index + 1
		page.Next = &next
	}
	return page
}

func payloadBytes(letters []bulk.DeadLetter) (bytes int) {
	for i := range letters {
		bytes += len(letters[i].Payload)
	}
	return bytes
}

// failuresCSV writes all failures, page by page. If a page cannot be read, it aborts
// the connection, so that the client does not mistake a part for the whole.
func (s *server) failuresCSV(ctx context.Context, in *inFailures, w http.ResponseWriter, letters []bulk.DeadLetter) {
	out := edge.NewStream(w, csvType+"; charset=utf-8; header=present")
	var text bytes.Buffer
	rows := csv.NewWriter(&text)
	_ = rows.Write(csvColumns) // A bytes.Buffer returns no errors.
	for {
		for i := range letters {
			_ = rows.Write(csvRow(&letters[i]))
		}
		rows.Flush()
		if out.Send(text.Bytes()) != nil || len(letters) == 0 {
			return
		}
		text.Reset()
		var err error
		letters, err = s.engine.DeadLetters(ctx, in.ID, letters[len(letters)-1].Index+1, csvPage)
		if err != nil {
			s.part.Failed(ctx, failuresID, refuse(in.ID, err))
			panic(http.ErrAbortHandler)
		}
	}
}

var csvColumns = []string{"index", "id", "error", "attempts", "failed_at", "payload"}

func csvRow(d *bulk.DeadLetter) []string {
	return []string{
		strconv.FormatInt(d.Index, 10),
		bulk.JobID(d.Action, d.Index),
		d.Error,
		strconv.Itoa(d.Attempts),
		d.FailedAt.UTC().Format(time.RFC3339Nano),
		string(d.Payload),
	}
}

type inDeadLetters struct {
	Action string `query:"action" doc:"Only those of this action."`
	Tenant string `query:"tenant" doc:"Only those of this tenant."`
	After  string `query:"after" doc:"What the page before gave as next."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most jobs of a page."`
}

func (s *server) deadLetters(ctx context.Context, in *inDeadLetters) (*object[wire.DeadLetters], error) {
	out := &object[wire.DeadLetters]{Body: wire.DeadLetters{DeadLetters: []wire.DeadLetter{}}}
	var err error
	if in.After, err = reveal(ctx, in.After); err != nil {
		return nil, err
	}
	list := &letterList{server: s, in: in, page: &out.Body}
	if err := list.fill(ctx); err != nil {
		return nil, refuse(in.Action, err)
	}
	out.Body.Next = hide(ctx, out.Body.Next)
	return out, nil
}

func (s *server) replay(ctx context.Context, in *object[wire.Replay]) (*outCreated, error) {
	action, err := s.engine.Replay(ctx, in.Body.Action)
	if err != nil {
		return nil, refuse(in.Body.Action, err)
	}
	return createdAnswer(action), nil
}

// letterList collects one page of dead letters from one action or from many. Its
// cursor is the id of the last job that was read.
type letterList struct {
	server *server
	in     *inDeadLetters
	page   *wire.DeadLetters
	bytes  int // of the payloads of the page
}

func (l *letterList) fill(ctx context.Context) error {
	action, from, err := l.cursor()
	if err != nil {
		return err
	}
	if action != "" {
		full, err := l.collect(ctx, action, from)
		if err != nil || full || l.in.Action != "" {
			return err
		}
	}
	last, err := l.server.scan(ctx, action, maxLetterScan, maxLetterScan, func(a *bulk.Action) (bool, error) {
		if a.Failed == 0 || l.in.Tenant != "" && l.in.Tenant != a.Tenant {
			return true, nil
		}
		full, err := l.collect(ctx, a.ID, 0)
		return !full, err
	})
	if last != nil {
		next := bulk.JobID(*last, math.MaxInt64)
		l.page.Next = &next
	}
	return err
}

// cursor is the action and the index to begin with; the action is empty for the
// first of all.
func (l *letterList) cursor() (action string, from int64, err error) {
	if l.in.After == "" {
		return l.in.Action, 0, nil
	}
	action, index, err := bulk.ParseJobID(l.in.After)
	if err != nil || (l.in.Action != "" && action != l.in.Action) {
		return "", 0, edge.Invalid("after", "want the next of the page before")
	}
	if index == math.MaxInt64 {
		return action, index, nil
	}
	return action, index + 1, nil
}

// collect adds the letters of one action from an index on. It reports whether the
// page is full, and then where the next one begins.
func (l *letterList) collect(ctx context.Context, action string, from int64) (full bool, err error) {
	room := l.in.Limit - len(l.page.DeadLetters)
	letters, err := l.server.engine.DeadLetters(ctx, action, from, room+1)
	if errors.Is(err, bulk.ErrNotFound) && l.in.Action == "" {
		return false, nil // It was forgotten since it was listed.
	}
	if err != nil {
		return false, err
	}
	for i := range letters[:min(len(letters), room)] {
		l.page.DeadLetters = append(l.page.DeadLetters, deadLetter(letters[i]))
		if l.bytes += len(letters[i].Payload); l.bytes >= bulk.MaxPageBytes {
			full = true
			break
		}
	}
	if len(letters) <= room && !full {
		return false, nil
	}
	next := l.page.DeadLetters[len(l.page.DeadLetters)-1].ID
	l.page.Next = &next
	return true, nil
}
