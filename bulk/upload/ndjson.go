package upload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// NDJSON reads newline-delimited JSON: each line is a payload, any JSON value.
// Blank lines are skipped, lines may end in CR and LF, and white space around a
// value and a UTF-8 byte order mark are dropped.
type NDJSON struct {
	lines   lines
	checked bool
	err     error
}

// NewNDJSON returns a parser of r.
func NewNDJSON(r io.Reader) *NDJSON { return &NDJSON{lines: lines{source: r}} }

// NewCheckedNDJSON returns a parser of a stream that another parser has read to its end
// without an error: it does not check again whether each line is a JSON value.
func NewCheckedNDJSON(r io.Reader) *NDJSON { return &NDJSON{lines: lines{source: r}, checked: true} }

// Next implements Parser.
func (n *NDJSON) Next() ([]byte, error) {
	for n.err == nil {
		var line []byte
		if line, n.err = n.lines.next(); n.err != nil {
			break
		}
		payload := bytes.Trim(line, " \t\r\n")
		switch {
		case len(payload) == 0:
		case n.checked || json.Valid(payload):
			return payload, nil
		default:
			n.err = &Error{n.lines.number, whyInvalid(payload)}
		}
	}
	return nil, n.err
}

// Line returns the number of the line of the last payload.
func (n *NDJSON) Line() int64 { return n.lines.number }

// whyInvalid explains why json.Valid refused a payload.
func whyInvalid(payload []byte) string {
	var value json.RawMessage
	if err := json.Unmarshal(payload, &value); err != nil {
		return "want one JSON value: " + err.Error()
	}
	return "want one JSON value"
}

// MaxPayload is the maximum size of one payload, and of its line or record, in bytes: 1 MiB.
const MaxPayload = 1 << 20

// Parser yields the payloads of one stream.
type Parser interface {
	// Next returns the next payload, valid until the next call; io.EOF after the
	// last one; an *Error if the stream breaks its format; or the error of the
	// stream itself. After an error, Next returns that error again.
	Next() (payload []byte, err error)
}

// Error is the error of a stream that breaks its format.
type Error struct {
	// Line is the number of the line, from 1; blank lines count.
	Line int64
	// Why describes the mistake and the correct form.
	Why string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Why) }

var (
	_ Parser = (*NDJSON)(nil)
	_ Parser = (*CSV)(nil)
)
