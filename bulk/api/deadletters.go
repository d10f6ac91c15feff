package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

const jsonType = "application/json"

func (s *server) registerDeadLetters(api huma.API) {
	failures := operation(api, "list-failures", "GET /v1/actions/{id}/failures", "The failed jobs of an action, by index")
	failures.Description = "JSON in pages; CSV, asked for by Accept or format, all from the given index on, with the columns index, id, error, attempts, failed_at, payload."
	page := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Failures](), true, "")
	failures.Responses["200"] = &huma.Response{
		Description: "The failed jobs.",
		Content:     map[string]*huma.MediaType{jsonType: {Schema: page}, csvType: {Schema: &huma.Schema{Type: "string"}}},
	}
	huma.Register(api, failures, s.failures)
	huma.Register(api, operation(api, "list-dead-letters", "GET /v1/dead-letters", "The failed jobs of one action or of all"), s.deadLetters)

	replay := operation(api, "replay-dead-letters", "POST /v1/dead-letters/replay", "Run the failed jobs of a finished action again, in a new action")
	replay.DefaultStatus = http.StatusCreated
	huma.Register(api, replay, s.replay)
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
		return nil, s.refuse(ctx, in.ID, err)
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

// page is how many failures are asked for at one time.
func (in *inFailures) page() int {
	if in.csv() {
		return csvPage
	}
	return in.Limit
}

// object is a page of the letters, which may be one more than fit.
func (in *inFailures) object(letters []bulk.DeadLetter) wire.Failures {
	page := wire.Failures{Failures: []wire.DeadLetter{}}
	for _, letter := range letters[:min(len(letters), in.Limit)] {
		page.Failures = append(page.Failures, deadLetter(letter))
	}
	if len(letters) > in.Limit {
		page.Next = &letters[in.Limit].Index
	}
	return page
}

// failuresCSV writes all failures, page by page. If a page cannot be read, the
// connection is cut, so that the client does not take a part for the whole.
func (s *server) failuresCSV(ctx context.Context, in *inFailures, w http.ResponseWriter, letters []bulk.DeadLetter) {
	w.Header().Set("Content-Type", csvType+"; charset=utf-8; header=present")
	out := &stream{w: w, control: http.NewResponseController(w)}
	var text bytes.Buffer
	rows := csv.NewWriter(&text)
	_ = rows.Write(csvColumns) // A bytes.Buffer returns no errors.
	for {
		for i := range letters {
			_ = rows.Write(csvRow(&letters[i]))
		}
		rows.Flush()
		if out.send(text.Bytes()) != nil || len(letters) == 0 {
			return
		}
		text.Reset()
		var err error
		letters, err = s.engine.DeadLetters(ctx, in.ID, letters[len(letters)-1].Index+1, csvPage)
		if err != nil {
			_ = s.refuse(ctx, in.ID, err) // Too late for an answer: this logs it.
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

type outDeadLetters struct{ Body wire.DeadLetters }

func (s *server) deadLetters(ctx context.Context, in *inDeadLetters) (*outDeadLetters, error) {
	out := &outDeadLetters{Body: wire.DeadLetters{DeadLetters: []wire.DeadLetter{}}}
	list := &letterList{engine: s.engine, in: in, page: &out.Body}
	if err := list.fill(ctx); err != nil {
		return nil, s.refuse(ctx, in.Action, err)
	}
	return out, nil
}

type inReplay struct{ Body wire.Replay }

func (s *server) replay(ctx context.Context, in *inReplay) (*outCreated, error) {
	action, err := s.engine.Replay(ctx, in.Body.Action)
	if err != nil {
		return nil, s.refuse(ctx, in.Body.Action, err)
	}
	return createdAnswer(action), nil
}
