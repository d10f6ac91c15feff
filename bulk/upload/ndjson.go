package upload

import (
	"bytes"
	"encoding/json"
	"io"
)

// NDJSON reads newline-delimited JSON: each line is a payload, any JSON value.
// Blank lines are skipped, lines may end in CR and LF, and white space around a
// value and a UTF-8 byte order mark are dropped.
type NDJSON struct {
	lines lines
	err   error
}

// NewNDJSON returns a parser of r.
func NewNDJSON(r io.Reader) *NDJSON { return &NDJSON{lines: lines{source: r}} }

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
		case json.Valid(payload):
			return payload, nil
		default:
			n.err = &Error{n.lines.number, whyInvalid(payload)}
		}
	}
	return nil, n.err
}

// Line is the number of the line that the last payload was read from.
func (n *NDJSON) Line() int64 { return n.lines.number }

// whyInvalid explains what json.Valid refused.
func whyInvalid(payload []byte) string {
	var value json.RawMessage
	if err := json.Unmarshal(payload, &value); err != nil {
		return "want one JSON value: " + err.Error()
	}
	return "want one JSON value"
}
