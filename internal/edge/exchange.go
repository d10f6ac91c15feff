package edge

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/internal/edge/problem"
)

// Exchange is a request with its answer, for handlers of their own. It is valid
// until the handler returns.
type Exchange struct {
	W http.ResponseWriter
	R *http.Request
	// Public reports whether the request came to [API.Public]: anybody may have sent it.
	Public bool
	// In is the body of the request, Out that of the answer.
	In, Out []byte

	endpoint *endpoint
	names    []string
	values   values
	query    url.Values
}

var exchanges = sync.Pool{New: func() any { return new(Exchange) }}

// maxPooled is the most bytes of a buffer that is kept for the next exchange.
const maxPooled = 16 << 10

func (e *Exchange) release() {
	in, out := e.In[:0], e.Out[:0]
	if cap(in) > maxPooled {
		in = nil
	}
	if cap(out) > maxPooled {
		out = nil
	}
	*e = Exchange{In: in, Out: out}
	exchanges.Put(e)
}

// serve runs the handler of the operation.
func (e *Exchange) serve() error {
	if e.R.URL.RawQuery != "" {
		if err := e.parseQuery(); err != nil {
			return err
		}
	}
	if e.R.ContentLength != 0 {
		if err := e.readBody(); err != nil {
			return err
		}
	}
	return e.endpoint.run(e)
}

// Path returns the value of a wildcard of the path.
func (e *Exchange) Path(name string) string {
	for i, n := range e.names {
		if n == name {
			return e.values.texts[i]
		}
	}
	return ""
}

// Query returns a parameter of the query, or "".
func (e *Exchange) Query(name string) string { return e.query.Get(name) }

// parseQuery reads the query: known parameters, once each.
func (e *Exchange) parseQuery() error {
	query, err := url.ParseQuery(e.R.URL.RawQuery)
	if err != nil {
		return Invalid("query", "cannot be read: "+err.Error())
	}
	parameters := e.endpoint.parameters
	for name, values := range query {
		switch {
		case !slices.Contains(parameters, name):
			known := "there is none"
			if len(parameters) > 0 {
				known = "there is " + strings.Join(parameters, ", ")
			}
			return Invalid(name, "unknown parameter; "+known)
		case len(values) > 1:
			return Invalid(name, "is given more than once")
		}
	}
	e.query = query
	return nil
}

// Number reads a parameter of the query; -1 if it is absent.
func (e *Exchange) Number(name string, most int64) (int64, error) {
	text := e.query.Get(name)
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, Invalid(name, "give a whole number from 0 to "+strconv.FormatInt(most, 10))
	}
	return n, nil
}

// readBody reads the whole body.
func (e *Exchange) readBody() error {
	if err := e.readAll(int(e.endpoint.maxBody)); err != nil {
		return err
	}
	if !e.endpoint.readsBody {
		e.In = e.In[:0]
	}
	if len(e.In) > 0 {
		return checkType(e.R.Header.Get("Content-Type"))
	}
	return nil
}

func (e *Exchange) readAll(most int) error {
	if e.R.ContentLength > int64(most) {
		return tooLarge(int64(most))
	}
	e.In = slices.Grow(e.In[:0], int(max(e.R.ContentLength, 512))+1)
	for {
		n, err := e.R.Body.Read(e.In[len(e.In):min(cap(e.In), most+1)])
		e.In = e.In[:len(e.In)+n]
		switch {
		case len(e.In) > most:
			return tooLarge(int64(most))
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return TooSlow()
		case err != nil:
			return Refuse(http.StatusBadRequest, problem.Invalid, "the body cannot be read")
		}
		if len(e.In) == cap(e.In) {
			e.In = slices.Grow(e.In, len(e.In))
		}
	}
}

// Header values that all answers share. Writers of responses do not change them.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// Answer writes Out, which is JSON.
func (e *Exchange) Answer(status int) error {
	header := e.W.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	e.W.WriteHeader(status)
	_, _ = e.W.Write(e.Out) // The client is gone if it fails.
	return nil
}

// AnswerValue writes a value as JSON.
func (e *Exchange) AnswerValue(status int, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	e.Out = append(e.Out[:0], text...)
	return e.Answer(status)
}

// NoContent answers with status 204.
func (e *Exchange) NoContent(err error) error {
	if err != nil {
		return err
	}
	e.W.WriteHeader(http.StatusNoContent)
	return nil
}
