package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// exchange is one request with its answer.
type exchange struct {
	w     http.ResponseWriter
	r     *http.Request
	room  string
	query url.Values
	// in is the body of the request, and out that of the answer.
	in, out []byte
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// maxPooled is the most bytes of a buffer that is kept for the next exchange.
const maxPooled = 16 << 10

func (e *exchange) release() {
	in, out := e.in[:0], e.out[:0]
	if cap(in) > maxPooled {
		in = nil
	}
	if cap(out) > maxPooled {
		out = nil
	}
	*e = exchange{in: in, out: out}
	exchanges.Put(e)
}

// parseQuery reads the query, which may have these parameters once each.
func (e *exchange) parseQuery(parameters []string) error {
	query, err := url.ParseQuery(e.r.URL.RawQuery)
	if err != nil {
		return invalid("query", "cannot be read: "+err.Error())
	}
	for name, values := range query {
		switch {
		case !slices.Contains(parameters, name):
			return invalid(name, "unknown parameter; "+known(parameters))
		case len(values) > 1:
			return invalid(name, "is there more than once")
		}
	}
	e.query = query
	return nil
}

func known(names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	return "there is " + strings.Join(names, ", ")
}

// number reads a parameter of the query; -1 if it is not there.
func (e *exchange) number(name string, most int64) (int64, error) {
	text := e.query.Get(name)
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, invalid(name, "give a whole number from 0 to "+strconv.FormatInt(most, 10))
	}
	return n, nil
}

// readBody reads the whole body within bodyTimeout. If most is 0 it is ignored.
func (e *exchange) readBody(most int) error {
	ignored := most == 0
	if ignored {
		most = MaxBody
	}
	// A writer that has no connection has no deadline.
	control := http.NewResponseController(e.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	err := e.readAll(most)
	if err != nil {
		// The deadline stays for what is left of the body, and the connection ends.
		e.w.Header().Set("Connection", "close")
		return err
	}
	_ = control.SetReadDeadline(time.Time{})
	if ignored {
		e.in = e.in[:0]
	}
	if len(e.in) > 0 {
		return checkType(e.r.Header.Get("Content-Type"))
	}
	return nil
}

func (e *exchange) readAll(most int) error {
	if e.r.ContentLength > int64(most) {
		return tooLarge(most)
	}
	e.in = slices.Grow(e.in[:0], int(max(e.r.ContentLength, 512))+1)
	for {
		n, err := e.r.Body.Read(e.in[len(e.in):min(cap(e.in), most+1)])
		e.in = e.in[:len(e.in)+n]
		switch {
		case len(e.in) > most:
			return tooLarge(most)
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return newProblem(http.StatusRequestTimeout, CodeTimeout, "the body did not arrive within "+bodyTimeout.String())
		case err != nil:
			return newProblem(http.StatusBadRequest, CodeInvalid, "the body cannot be read")
		}
		if len(e.in) == cap(e.in) {
			e.in = slices.Grow(e.in, len(e.in))
		}
	}
}

// checkType: one may leave the type out.
func checkType(contentType string) error {
	if contentType == "" || contentType == "application/json" {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(contentType); err == nil && kind == "application/json" {
		return nil
	}
	return newProblem(http.StatusUnsupportedMediaType, CodeMediaType, "content type "+strconv.Quote(contentType[:min(len(contentType), 100)])+": want application/json")
}

// Header values that all answers share. Writers of responses do not change them.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// answer writes e.out, which is JSON.
func (e *exchange) answer(status int) error {
	header := e.w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	e.w.WriteHeader(status)
	_, _ = e.w.Write(e.out) // The client has gone if it fails.
	return nil
}

// answerValue writes a value as JSON.
func (e *exchange) answerValue(status int, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	e.out = append(e.out[:0], text...)
	return e.answer(status)
}

func (e *exchange) noContent() error {
	e.w.WriteHeader(http.StatusNoContent)
	return nil
}
