package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/internal/edge"
)

func (s *server) registerJobs() {
	edge.Register(s.part, edge.Operation{
		ID: "upload-jobs", Route: "POST /v1/actions/{id}/jobs", Summary: "Upload a chunk of jobs",
		Description: fmt.Sprintf("NDJSON: each line is a payload, any JSON value. CSV: each row is a payload, "+
			"an object of strings; the header is in every chunk. At most %d bytes, also after decompression, and "+
			"%d for one payload, %d for all of a chunk. Jobs that the action already has are skipped, so a chunk may be "+
			"sent again. A bad line rejects its whole chunk.", MaxChunk, upload.MaxPayload, maxPayloads),
		Reads: []string{ndjsonType, csvType},
	}, s.upload)
	register(s, "seal-action", "POST /v1/actions/{id}/seal", "Declare that all jobs were sent, and start the action", s.seal)
}

type inUpload struct {
	ID       string `path:"id" doc:"The action's id."`
	Offset   string `header:"Upload-Offset" doc:"How many jobs of the action were sent before this chunk. May be absent from the first."`
	Encoding string `header:"Content-Encoding" doc:"gzip, or absent."`
	request  *http.Request
	control  *http.ResponseController
}

// Resolve implements huma.Resolver: it keeps the request, whose body is read when the
// rest of the request is in order.
func (in *inUpload) Resolve(ctx huma.Context) []error {
	request, w := humago.Unwrap(ctx)
	in.request, in.control = request, http.NewResponseController(w)
	return nil
}

func (s *server) upload(ctx context.Context, in *inUpload) (*object[wire.Received], error) {
	parse, err := formatOf(in.request.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(in.Encoding); err != nil {
		return nil, err
	}
	// Refuse what can be refused before the body is read.
	action, err := s.engine.Action(ctx, in.ID)
	if err != nil {
		return nil, refuse(in.ID, err)
	}
	offset, err := startOf(in.Offset, action)
	if err != nil {
		return nil, refuse(in.ID, err)
	}
	data := s.memory.begin(action.Tenant, in.control)
	defer data.free()
	if err := readChunk(ctx, data, in.request.Body, in.Encoding); err != nil {
		return nil, refuse(in.ID, err)
	}
	leave, ok := s.uploads.enter(ctx, action.Tenant)
	if !ok {
		return nil, busy(fmt.Sprintf("%d uploads are being stored, and others wait: send the chunk again", MaxUploads))
	}
	defer leave()
	count, err := s.append(ctx, in.ID, offset, chunk{data: data, parse: parse})
	if err != nil {
		return nil, err
	}
	return &object[wire.Received]{Body: wire.Received{Received: count}}, nil
}

func busy(detail string) *edge.Error {
	return edge.Refuse(http.StatusServiceUnavailable, wire.CodeBusy, detail).RetryAfter(time.Second)
}

// startOf returns the offset of the upload, if the action accepts it.
func startOf(header string, action bulk.Action) (int64, error) {
	if action.Status != bulk.Created {
		transition := bulk.TransitionError{ID: action.ID, From: action.Status, Why: "it takes no more jobs"}
		return 0, received(edge.Refuse(http.StatusConflict, wire.CodeStatus, transition.Error()), action.Received)
	}
	if header == "" {
		if action.Received > 0 {
			return 0, received(edge.InvalidField(http.StatusBadRequest, "Upload-Offset",
				fmt.Sprintf("send how many jobs were sent before this chunk; %d were received", action.Received)), action.Received)
		}
		return 0, nil
	}
	offset, err := strconv.ParseInt(header, 10, 64)
	if err != nil || offset < 0 {
		return 0, received(edge.InvalidField(http.StatusBadRequest, "Upload-Offset",
			fmt.Sprintf("%.40q: want the number of jobs sent before this chunk", header)), action.Received)
	}
	if offset > action.Received {
		return 0, &bulk.OffsetError{Received: action.Received}
	}
	return offset, nil
}

// append appends a chunk. The whole chunk is checked before its first job is appended,
// so that a bad line changes nothing. A chunk that fits one batch, as nearly every
// chunk does, is appended as it was parsed. The payloads of a larger one are not kept
// from the check: those of CSV repeat the header, so they can take much more memory than
// the chunk.
func (s *server) append(ctx context.Context, id string, offset int64, c chunk) (total int64, err error) {
	parser := &bounded{Parser: c.parse(c.data.reader(), false), ctx: ctx}
	only, err := nextBatch(parser)
	fits := true
	for err == nil {
		_, err = parser.Next()
		fits = fits && err != nil
	}
	switch {
	case !errors.Is(err, io.EOF):
		return 0, refuse(id, badLine(err))
	case !fits:
		return s.appendAll(ctx, id, offset, c)
	}
	if total, err = s.engine.Append(ctx, id, offset, only); err != nil {
		return 0, refuse(id, err)
	}
	return total, nil
}

// appendAll appends a checked chunk batch by batch. If it fails in between, the problem
// says how many jobs were received, from where the client continues.
func (s *server) appendAll(ctx context.Context, id string, offset int64, c chunk) (total int64, err error) {
	parser := c.parse(c.data.reader(), true)
	for {
		batch, _ := nextBatch(parser) // the only error is io.EOF: the chunk was checked
		if len(batch) == 0 {
			return total, nil
		}
		now, err := total, ctx.Err()
		if err == nil { // the engine may ignore the context
			now, err = s.engine.Append(ctx, id, offset, batch)
		}
		if err != nil {
			p := refuse(id, err)
			if p.Received == nil && total > 0 {
				p = received(p, total)
			}
			return 0, p
		}
		total = now
		offset += int64(len(batch))
	}
}

type inSeal struct {
	ID   string `path:"id" doc:"The action's id."`
	Body wire.Seal
}

func (s *server) seal(ctx context.Context, in *inSeal) (*object[wire.Action], error) {
	action, err := s.engine.Seal(ctx, in.ID, in.Body.Total)
	var transition *bulk.TransitionError
	if errors.As(err, &transition) {
		code := wire.CodeTotal
		if transition.From == bulk.Canceled {
			code = wire.CodeStatus // No total would be right.
		}
		p := received(edge.Refuse(http.StatusConflict, code, transition.Error()), transition.Received)
		p.Total = &in.Body.Total
		return nil, p
	}
	return s.answer(ctx, in.ID, action, err)
}
