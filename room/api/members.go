package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-project/sluice/internal/edge"
)

// text is a member of a body, which may be absent.
type text struct {
	value string
	given bool
}

// members reads a JSON object whose members are strings, with no other names than
// these; values[i] is that of names[i]. A member that is null is absent, and a body
// that is empty has none.
func members(body []byte, names []string, values []text) error {
	if value, ok := single(body, names[0]); ok {
		values[0] = text{string(value), true}
		return nil
	}
	if len(bytes.Trim(body, " \t\r\n")) == 0 {
		return nil
	}
	if !utf8.Valid(body) { // A decoder would map different keys to one.
		return edge.Invalid("body", "is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return edge.Invalid("body", "want a JSON object, such as {\""+names[0]+"\":\"…\"}")
	}
	for decoder.More() {
		if err := member(decoder, names, values); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return notJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return edge.Invalid("body", "there is more after the JSON object")
	}
	return nil
}

func notJSON(err error) error { return edge.Invalid("body", "is not JSON: "+err.Error()) }

func member(decoder *json.Decoder, names []string, values []text) error {
	token, err := decoder.Token()
	if err != nil {
		return notJSON(err)
	}
	name, _ := token.(string) // Nothing else comes here.
	at := slices.Index(names, name)
	if at < 0 {
		return edge.Invalid(name, "unknown field; there is "+strings.Join(names, ", "))
	}
	if values[at].given {
		return edge.Invalid(name, "is given twice")
	}
	switch token, err = decoder.Token(); value := token.(type) {
	case string:
		values[at] = text{value, true}
	case nil:
		if err != nil {
			return notJSON(err)
		}
	default:
		return edge.Invalid(name, "want a string")
	}
	return nil
}

// single reads the usual body without allocating: an object with one member of a
// name, whose value is a string without escapes.
func single(body []byte, name string) (value []byte, ok bool) {
	s := scanner{rest: body}
	s.expect('{')
	s.expect('"')
	s.literal(name)
	s.literal(`"`)
	s.expect(':')
	s.expect('"')
	value = s.plain()
	s.expect('}')
	s.space()
	return value, !s.failed && len(s.rest) == 0
}

// scanner reads until it fails.
type scanner struct {
	rest   []byte
	failed bool
}

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t' || s.rest[0] == '\n' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

// expect reads one byte after white space.
func (s *scanner) expect(c byte) {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		s.failed = true
		return
	}
	s.rest = s.rest[1:]
}

func (s *scanner) literal(text string) {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		s.failed = true
		return
	}
	s.rest = s.rest[len(text):]
}

// plain reads a string without escapes to its end.
func (s *scanner) plain() []byte {
	end := bytes.IndexByte(s.rest, '"')
	if end < 0 {
		s.failed = true
		return nil
	}
	value := s.rest[:end]
	for _, c := range value {
		s.failed = s.failed || c < ' ' || c == '\\'
	}
	s.failed = s.failed || !utf8.Valid(value)
	s.rest = s.rest[end+1:]
	return value
}
