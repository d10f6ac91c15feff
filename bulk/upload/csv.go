package upload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// CSV reads comma-separated values as in RFC 4180, with a header. Each row becomes a JSON
// object of strings, with keys in the order of the header. Quoted values may contain commas,
// line breaks and doubled quotes, and are kept byte for byte. Lines may end in CR and LF.
// Blank lines are skipped (an empty value alone on its line is written as ""), and a UTF-8
// byte order mark is dropped.
//
// These are errors: no header; an empty or duplicate column name; a row whose number of
// values differs from the header's; a quote within an unquoted value or after a quoted one; a
// quoted value that does not end; a CR that ends no line.
type CSV struct {
	lines  lines
	header []string
	// keys has, for each column, the text before its value in the payload.
	keys   [][]byte
	values [][]byte
	// scratch holds the unquoted values of a row, one after another.
	scratch []byte
	ends    []int
	payload []byte
	line    int64
	err     error
}

// NewCSV returns a parser of r.
func NewCSV(r io.Reader) *CSV { return &CSV{lines: lines{source: r}} }

// Header reads the header, if it has not been read, and returns its columns. Callers must not
// modify them.
func (c *CSV) Header() ([]string, error) {
	if c.header == nil && c.err == nil {
		c.err = c.readHeader()
	}
	if c.header == nil {
		return nil, c.err
	}
	return c.header, nil
}

// Column returns the index of a column in the header, for Value. If there is none, the error
// names the columns.
func (c *CSV) Column(name string) (int, error) {
	header, err := c.Header()
	if err != nil {
		return 0, err
	}
	at := slices.Index(header, name)
	if at < 0 {
		return 0, fmt.Errorf("no column %q; the header begins %q", name, header[:min(len(header), 50)])
	}
	return at, nil
}

// Next implements Parser.
func (c *CSV) Next() ([]byte, error) {
	if _, err := c.Header(); err != nil {
		return nil, err
	}
	if c.err == nil {
		c.err = c.readRecord()
	}
	if c.err == nil {
		c.err = c.encode()
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.payload, nil
}

// Value returns the value of a column of the row last returned by Next, before its conversion
// to JSON. It is valid until the next call of Next.
func (c *CSV) Value(column int) []byte { return c.values[column] }

// Line returns the number of the line on which the last row began.
func (c *CSV) Line() int64 { return c.line }

func (c *CSV) readHeader() error {
	err := c.readRecord()
	if errors.Is(err, io.EOF) {
		return &Error{1, "want a header line with the names of the columns"}
	}
	if err != nil {
		return err
	}
	header := make([]string, 0, len(c.values))
	seen := make(map[string]bool, len(c.values))
	for i, value := range c.values {
		name := string(value)
		switch {
		case name == "":
			return &Error{c.line, fmt.Sprintf("column %d of the header has no name", i+1)}
		case seen[name]:
			return &Error{c.line, fmt.Sprintf("the header has column %.100q twice", name)}
		}
		seen[name] = true
		header = append(header, name)
		c.keys = append(c.keys, key(i, value))
	}
	c.header = header
	return nil
}

// key returns the text before the value of column i in a payload.
func key(i int, name []byte) []byte {
	text := []byte{','}
	if i == 0 {
		text = []byte{'{'}
	}
	text = appendString(text, name)
	return append(text, ':')
}

// readRecord reads the values of the next record that is not blank.
func (c *CSV) readRecord() error {
	for {
		line, err := c.lines.next()
		if err != nil {
			return err
		}
		c.line = c.lines.number
		if text := trimEnding(line); len(text) > 0 {
			return c.split(line, text)
		}
	}
}

func (c *CSV) split(line, text []byte) error {
	c.values = c.values[:0]
	if bytes.IndexByte(text, '"') >= 0 {
		if err := c.splitQuoted(line); err != nil {
			return err
		}
	} else {
		if bytes.IndexByte(text, '\r') >= 0 {
			return c.strayReturn()
		}
		for {
			at := bytes.IndexByte(text, ',')
			if at < 0 {
				break
			}
			c.values = append(c.values, text[:at])
			text = text[at+1:]
		}
		c.values = append(c.values, text)
	}
	if c.header != nil && len(c.values) != len(c.header) {
		return &Error{c.line, fmt.Sprintf("want %d values, as the header has; got %d", len(c.header), len(c.values))}
	}
	return nil
}

func (c *CSV) strayReturn() error {
	return &Error{c.lines.number, "a carriage return that ends no line: end lines with LF or CR LF, or quote the value"}
}

// encode builds the payload of the values.
func (c *CSV) encode() error {
	c.payload = c.payload[:0]
	for i, value := range c.values {
		c.payload = append(c.payload, c.keys[i]...)
		c.payload = appendString(c.payload, value)
		if len(c.payload) >= MaxPayload {
			return &Error{c.line, fmt.Sprintf("the row is more than %d bytes long as a JSON object", MaxPayload)}
		}
	}
	c.payload = append(c.payload, '}')
	return nil
}
