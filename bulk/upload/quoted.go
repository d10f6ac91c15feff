package upload

import (
	"bytes"
	"errors"
	"io"
)

// splitQuoted splits a record that contains quotes. It reads further lines if a quoted value
// continues there. It collects unquoted text in scratch, and cuts that into values at the
// end, since scratch may be reallocated.
func (c *CSV) splitQuoted(token []byte) error {
	c.scratch = c.scratch[:0]
	c.ends = c.ends[:0]
	at := 0
	for more := true; more; {
		var err error
		if at < len(token) && token[at] == '"' {
			token, at, err = c.quotedValue(token, at+1)
		} else {
			at, err = c.plainValue(token, at)
		}
		if err != nil {
			return err
		}
		c.ends = append(c.ends, len(c.scratch))
		more = at < len(token) && token[at] == ','
		at++
	}
	start := 0
	for _, end := range c.ends {
		c.values = append(c.values, c.scratch[start:end:end])
		start = end
	}
	return nil
}

// plainValue reads the unquoted value at an index of the token. It returns the index of its
// end: at a comma or at the end of the line.
func (c *CSV) plainValue(token []byte, at int) (int, error) {
	rest := trimEnding(token[at:])
	if comma := bytes.IndexByte(rest, ','); comma >= 0 {
		rest = rest[:comma]
	}
	if bytes.IndexByte(rest, '"') >= 0 {
		return 0, &Error{c.lines.number, `a quote in an unquoted value: quote the whole value, and double the quote`}
	}
	if bytes.IndexByte(rest, '\r') >= 0 {
		return 0, c.strayReturn()
	}
	c.scratch = append(c.scratch, rest...)
	end := at + len(rest)
	if end < len(token) && token[end] != ',' {
		end = len(token)
	}
	return end, nil
}

// quotedValue reads the value whose opening quote is just before an index of the token. It
// returns the token, which may have grown, and the index of the value's end: at a comma or at
// the end of the line.
func (c *CSV) quotedValue(token []byte, at int) ([]byte, int, error) {
	opened := c.lines.number
	for {
		quote := bytes.IndexByte(token[at:], '"')
		if quote < 0 {
			// Extending moves the token, so the bytes read so far are saved first.
			c.scratch = append(c.scratch, token[at:]...)
			at = len(token)
			var err error
			if token, err = c.lines.extend(); errors.Is(err, io.EOF) {
				return nil, 0, &Error{opened, "a quoted value that begins here does not end"}
			} else if err != nil {
				return nil, 0, err
			}
			continue
		}
		c.scratch = append(c.scratch, token[at:at+quote]...)
		at += quote + 1
		rest := token[at:]
		switch {
		case len(rest) > 0 && rest[0] == '"':
			c.scratch = append(c.scratch, '"')
			at++
		case len(rest) > 0 && rest[0] == ',':
			return token, at, nil
		case len(trimEnding(rest)) == 0:
			return token, len(token), nil
		default:
			return nil, 0, &Error{c.lines.number, "text after a quoted value: double the quotes within it"}
		}
	}
}
