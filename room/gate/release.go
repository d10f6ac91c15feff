package gate

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// ReleaseHeader is the response header with which the upstream ends a visit, with the
// value "pass". It does not reach the visitor.
const ReleaseHeader = "Sluice-Release"

// releaser looks for ReleaseHeader in the upstream's answer.
type releaser struct {
	http.ResponseWriter
	visit *visit
	wrote bool
}

// WriteHeader implements http.ResponseWriter.
func (w *releaser) WriteHeader(status int) {
	// Answers of 1xx come before the final one.
	if !w.wrote && status >= http.StatusOK {
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *releaser) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that files are still sent by the kernel.
func (w *releaser) ReadFrom(source io.Reader) (int64, error) {
	w.begin()
	return io.Copy(w.ResponseWriter, source)
}

// Flush implements http.Flusher.
func (w *releaser) Flush() { _ = w.FlushError() }

// FlushError implements the flusher of http.ResponseController.
func (w *releaser) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *releaser) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin ends the visit before the answer begins, so that the cookies can be removed.
func (w *releaser) begin() {
	if w.wrote {
		return
	}
	w.wrote = true
	if values := w.Header().Values(ReleaseHeader); len(values) > 0 {
		w.Header().Del(ReleaseHeader)
		if strings.EqualFold(strings.TrimSpace(values[0]), "pass") {
			w.visit.release()
		}
	}
	w.visit.sendCookies()
}

// release ends the visit even if the client has gone. If the store does not answer, the
// pass ends by its time.
func (v *visit) release() {
	v.r = v.r.WithContext(context.WithoutCancel(v.r.Context()))
	if err := v.giveUp(); err != nil {
		v.failed(err)
	}
	v.cookies = nil
	v.setCookie(v.door.ticketCookie, "", 0)
	v.setCookie(v.door.passCookie, "", 0)
}
