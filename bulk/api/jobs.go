package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/upload"
)

func (s *server) registerJobs(api huma.API) {
	op := operation(api, "upload-jobs", "POST /v1/actions/{id}/jobs", "Upload a chunk of jobs")
	op.Description = fmt.Sprintf("NDJSON: each line is a payload, any JSON value. CSV: each row is a payload, "+
		"an object of strings; the header is in every chunk. At most %d bytes, also after decompression, and "+
		"%d for one payload. Jobs that the action has are skipped, so a chunk may be sent again. "+
		"A bad line rejects its whole chunk.", MaxChunk, upload.MaxPayload)
	text := func() *huma.MediaType { return &huma.MediaType{Schema: &huma.Schema{Type: "string"}} }
	op.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{ndjsonType: text(), csvType: text()},
	}
	huma.Register(api, op, s.upload)

	seal := operation(api, "seal-action", "POST /v1/actions/{id}/seal", "Say that all jobs were sent, and start the action")
	huma.Register(api, seal, s.seal)
}

type inUpload struct {
	ID       string `path:"id" doc:"The action's id."`
	Offset   string `header:"Upload-Offset" doc:"How many jobs of the action were sent before this chunk. May be absent from the first."`
	Encoding string `header:"Content-Encoding" doc:"gzip, or absent."`
	request  *http.Request
}

// Resolve implements huma.Resolver: it keeps the request, whose body is read
// when it is the upload's turn.
func (in *inUpload) Resolve(ctx huma.Context) []error {
	in.request, _ = humago.Unwrap(ctx)
	return nil
}

type outUpload struct{ Body wire.Received }

func (s *server) upload(ctx context.Context, in *inUpload) (*outUpload, error) {
	parse, err := formatOf(in.request.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(in.Encoding); err != nil {
		return nil, err
	}
	// What can be refused without the body is, before it is read.
	action, err := s.engine.Action(ctx, in.ID)
	if err != nil {
		return nil, s.refuse(ctx, in.ID, err)
	}
	offset, err := startOf(in.Offset, action)
	if err != nil {
		return nil, s.refuse(ctx, in.ID, err)
	}
	leave, ok := s.uploads.enter(ctx)
	if !ok {
		return nil, newProblem(http.StatusServiceUnavailable, wire.CodeBusy,
			fmt.Sprintf("%d uploads are being read; try again", MaxUploads)).retryAfter(time.Second)
	}
	defer leave()
	data, err := readChunk(in.request, in.Encoding)
	if err != nil {
		return nil, s.refuse(ctx, in.ID, err)
	}
	received, err := s.append(ctx, in.ID, offset, chunk{data: data, parse: parse})
	if err != nil {
		return nil, err
	}
	return &outUpload{Body: wire.Received{Received: received}}, nil
}

// startOf is the upload's offset, if the action can take it.
func startOf(header string, action bulk.Action) (int64, error) {
	if action.Status != bulk.Created {
		move := bulk.MoveError{ID: action.ID, From: action.Status, Why: "it takes no more jobs"}
		return 0, newProblem(http.StatusConflict, wire.CodeStatus, move.Error()).withReceived(action.Received)
	}
	if header == "" {
		if action.Received > 0 {
			return 0, invalid(http.StatusBadRequest, "Upload-Offset",
				fmt.Sprintf("send how many jobs were sent before this chunk; %d were received", action.Received)).withReceived(action.Received)
		}
		return 0, nil
	}
	offset, err := strconv.ParseInt(header, 10, 64)
	if err != nil || offset < 0 {
		return 0, invalid(http.StatusBadRequest, "Upload-Offset",
			fmt.Sprintf("%.40q: want the number of jobs sent before this chunk", header)).withReceived(action.Received)
	}
	if offset > action.Received {
		return 0, &bulk.OffsetError{Received: action.Received}
	}
	return offset, nil
}

// append hands a chunk to the engine. The whole chunk is read before its first
// job is appended, so that a bad line anywhere in it changes nothing. What fits
// one batch, as nearly every chunk does, is read once and appended in one move.
func (s *server) append(ctx context.Context, id string, offset int64, c chunk) (received int64, err error) {
	var only [][]byte
	count := 0
	for batch, err := range c.batches() {
		if err != nil {
			return 0, err
		}
		only = batch
		count++
	}
	if count <= 1 {
		received, err = s.engine.Append(ctx, id, offset, only)
		if err != nil {
			return 0, s.refuse(ctx, id, err)
		}
		return received, nil
	}
	return s.appendAll(ctx, id, offset, c)
}

// appendAll appends batch by batch. If it fails in between, the problem says how
// many jobs were received, for the client to go on from.
func (s *server) appendAll(ctx context.Context, id string, offset int64, c chunk) (received int64, err error) {
	for batch, err := range c.batches() {
		if err != nil {
			return 0, err
		}
		now, err := s.engine.Append(ctx, id, offset, batch)
		if err != nil {
			p := s.refuse(ctx, id, err)
			if p.Received == nil && received > 0 {
				p = p.withReceived(received)
			}
			return 0, p
		}
		received = now
		offset += int64(len(batch))
	}
	return received, nil
}

type inSeal struct {
	ID   string `path:"id" doc:"The action's id."`
	Body wire.Seal
}

func (s *server) seal(ctx context.Context, in *inSeal) (*outAction, error) {
	action, err := s.engine.Seal(ctx, in.ID, in.Body.Total)
	var move *bulk.MoveError
	if errors.As(err, &move) {
		code := wire.CodeTotal
		if move.From == bulk.Canceled {
			code = wire.CodeStatus // No total would be right.
		}
		p := newProblem(http.StatusConflict, code, move.Error()).withReceived(move.Received)
		p.Total = &in.Body.Total
		return nil, p
	}
	return s.answer(ctx, in.ID, action, err)
}
