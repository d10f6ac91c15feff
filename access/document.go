package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// format is the version of the document that this release writes.
const format = 1

// ErrFull means that there are as many tokens as there may be.
var ErrFull = errors.New("access: there is no place for more: revoke tokens that are not used")

// document is all that access keeps.
type document struct {
	Format int      `json:"format"`
	Tokens []record `json:"tokens"`
}

// decode reads a document; nil is an empty one.
func decode(text []byte) (*document, error) {
	d := &document{Format: format}
	if text == nil {
		return d, nil
	}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("access: the document cannot be read: %w", err)
	}
	if d.Format != format {
		return nil, fmt.Errorf("access: the document has format %d, and this release reads %d: run the release that wrote it", d.Format, format)
	}
	for i := range d.Tokens {
		if n := copy(d.Tokens[i].hash[:], d.Tokens[i].Hash); n != len(d.Tokens[i].hash) {
			return nil, fmt.Errorf("access: the document has no whole hash of token %q", d.Tokens[i].Name)
		}
	}
	return d, nil
}

// Summary counts what a document has.
type Summary struct{ Tokens, Expired int }

// Summarize counts what a document has at a time, without those that were revoked, which are not in it. It fails where
// Accounts would.
func Summarize(text []byte, now time.Time) (Summary, error) {
	d, err := decode(text)
	if err != nil {
		return Summary{}, err
	}
	counted := Summary{Tokens: len(d.Tokens)}
	for i := range d.Tokens {
		if d.Tokens[i].expired(now) {
			counted.Expired++
		}
	}
	return counted, nil
}

// encode writes a document.
func (d *document) encode() ([]byte, error) {
	text, err := json.Marshal(d)
	if err == nil && (len(text) > MaxDocument || len(d.Tokens) > MaxTokens) {
		err = ErrFull
	}
	return text, err
}

// find returns the place of a token of a name, or -1.
func (d *document) find(name string) int {
	for i := range d.Tokens {
		if d.Tokens[i].Name == name {
			return i
		}
	}
	return -1
}
