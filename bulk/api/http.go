package api

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// ownPages refuses what a page of another origin would change: a browser that can
// reach the server sends such a request for any page, without asking, if it has no
// body.
var ownPages = http.NewCrossOriginProtection()

// edge stands before the operations. It refuses pages of other origins, gives every body a deadline, reads what
// is left of a refused body, and makes problems of unknown paths and methods.
type edge struct{ mux *http.ServeMux }

// ServeHTTP implements http.Handler.
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := ownPages.Check(r); err != nil {
		newProblem(http.StatusForbidden, wire.CodeCrossOrigin, "a page of another origin may not do this: "+err.Error()).write(w)
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		body := &body{ReadCloser: r.Body, control: http.NewResponseController(w)}
		// In a copy: the server decides by the type of its own request's body
		// whether the connection can be used again.
		r = r.WithContext(r.Context())
		r.Body = body
		defer body.drain(r)
	}
	handler, pattern := e.mux.Handler(r)
	if pattern != "" {
		e.mux.ServeHTTP(w, r)
		return
	}
	unmatched := &discard{header: http.Header{}}
	handler.ServeHTTP(unmatched, r)
	refusal := newProblem(http.StatusNotFound, wire.CodeNotFound, "there is no "+r.URL.Path+"; see /openapi.json")
	if unmatched.status == http.StatusMethodNotAllowed {
		allowed := unmatched.header.Get("Allow")
		w.Header().Set("Allow", allowed)
		refusal = newProblem(http.StatusMethodNotAllowed, wire.CodeMethod, r.URL.Path+" has only "+allowed)
	}
	refusal.write(w)
}

// write answers with the problem, outside of the operations.
func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// discard keeps only the status and the header of a response.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// body is the body of a request. Its deadline begins with the first read and is
// lifted at its end, since it would otherwise end a request that then waits.
type body struct {
	io.ReadCloser
	control      *http.ResponseController
	began, ended bool
}

func (b *body) Read(p []byte) (int, error) {
	if !b.began {
		b.began = true
		b.deadline(time.Now().Add(bodyTimeout))
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended = true
		b.deadline(time.Time{})
	}
	return n, err
}

// Close leaves the body open: drain needs it, and the server closes it.
func (b *body) Close() error { return nil }

// deadline is best effort: a writer that has no connection has no deadline.
func (b *body) deadline(at time.Time) { _ = b.control.SetReadDeadline(at) }

// drain reads what is left of the body. A client that is still sending when the
// connection is closed may never see the answer.
func (b *body) drain(r *http.Request) {
	waiting := !b.began && r.Header.Get("Expect") != ""
	if b.ended || waiting {
		return
	}
	b.began = true
	b.deadline(time.Now().Add(drainTimeout))
	_, _ = io.CopyN(io.Discard, b, maxDrain)
	b.deadline(time.Time{})
}
