package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
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
	wire.FailureFilter
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
	limit := in.Limit
	if in.csv() {
		limit = csvPage
	}
	filter := engine.LetterFilter{FailureFilter: bulk.FailureFilter(in.FailureFilter), Action: in.ID, Limit: limit}
	if in.From > 0 {
		filter.After = bulk.JobID(in.ID, in.From-1)
	}
	first, err := engine.FindLetters(ctx, s.engine, filter)
	if err != nil {
		return nil, refuse(in.ID, err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		_, w := humago.Unwrap(hctx)
		if in.csv() {
			s.failuresCSV(ctx, filter, w, first)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(failuresOf(first))
	}}, nil
}

// failuresOf returns the JSON object of a page of the letters of one action.
func failuresOf(letters engine.Letters) wire.Failures {
	page := wire.Failures{Failures: deadLetters(letters)}
	if _, index, err := bulk.ParseJobID(letters.Next); err == nil {
		index++
		page.Next = &index
	}
	return page
}

// failuresCSV writes all failures, page by page. If a page cannot be read, it aborts
// the connection, so that the client does not mistake a part for the whole.
func (s *server) failuresCSV(ctx context.Context, filter engine.LetterFilter, w http.ResponseWriter, page engine.Letters) {
	out := edge.NewStream(w, csvType+"; charset=utf-8; header=present")
	var text bytes.Buffer
	rows := csv.NewWriter(&text)
	_ = rows.Write(csvColumns) // A bytes.Buffer returns no errors.
	for {
		for i := range page.Found {
			_ = rows.Write(csvRow(&page.Found[i].DeadLetter))
		}
		rows.Flush()
		if out.Send(text.Bytes()) != nil || page.Next == "" {
			return
		}
		text.Reset()
		filter.After = page.Next
		var err error
		if page, err = engine.FindLetters(ctx, s.engine, filter); err != nil {
			s.part.Failed(ctx, failuresID, refuse(filter.Action, err))
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
	wire.FailureFilter
	Action string `query:"action" doc:"Only those of this action."`
	Tenant string `query:"tenant" doc:"Only those of this tenant."`
	Type   string `query:"type" doc:"Only those of jobs of this type."`
	Target string `query:"target" doc:"Only those of jobs with the target of this name."`
	After  string `query:"after" doc:"What the page before gave as next."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most jobs of a page."`
}

func (s *server) deadLetters(ctx context.Context, in *inDeadLetters) (*object[wire.DeadLetters], error) {
	after, err := reveal(ctx, in.After)
	if err != nil {
		return nil, err
	}
	filter := engine.LetterFilter{
		FailureFilter: bulk.FailureFilter(in.FailureFilter), Action: in.Action, Tenant: in.Tenant, Type: in.Type, Target: in.Target,
		After: after, Limit: in.Limit, Sees: func(tenant string) bool { return sees(ctx, tenant) },
	}
	page, err := engine.FindLetters(ctx, s.engine, filter)
	if err != nil {
		return nil, refuse(in.Action, err)
	}
	out := &object[wire.DeadLetters]{Body: wire.DeadLetters{DeadLetters: deadLetters(page)}}
	if page.Next != "" {
		out.Body.Next = hide(ctx, &page.Next)
	}
	return out, nil
}

func deadLetters(page engine.Letters) []wire.DeadLetter {
	objects := make([]wire.DeadLetter, len(page.Found))
	for i := range page.Found {
		objects[i] = deadLetter(page.Found[i].DeadLetter)
	}
	return objects
}

func (s *server) replay(ctx context.Context, in *object[wire.Replay]) (*outCreated, error) {
	action, err := s.engine.Replay(ctx, in.Body.Action, bulk.FailureFilter(in.Body.FailureFilter))
	if err != nil {
		return nil, refuse(in.Body.Action, err)
	}
	return createdAnswer(action), nil
}
