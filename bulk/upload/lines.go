package upload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// lines splits a stream into lines, and can join a line with the following ones. Its buffer
// holds one line or joined lines: at most MaxPayload and a line ending.
type lines struct {
	source io.Reader
	buffer []byte
	// The token is buffer[start:end]; buffer[end:] has been read ahead.
	start, end int
	// number is the number of the token's last line, from 1.
	number int64
	// failure is the error of the source; it is returned when buffer is used up.
	failure error
}

const (
	firstBuffer = 64 << 10
	// maxToken leaves room for a line ending, CR and LF.
	maxToken = MaxPayload + 2
	// idleReads is how often a source may return no bytes and no error.
	idleReads = 100
)

var byteOrderMark = []byte("\ufeff")

// next returns the next line with its ending; the last one may have none. The
// error is io.EOF after the last line.
func (l *lines) next() ([]byte, error) {
	l.start = l.end
	line, err := l.extend()
	if err != nil || l.number > 1 {
		return line, err
	}
	if bytes.HasPrefix(line, byteOrderMark) {
		l.start += len(byteOrderMark)
	}
	return l.buffer[l.start:l.end], nil
}

// extend adds the next line to the token and returns the whole token. The error
// is io.EOF if there is no next line.
func (l *lines) extend() ([]byte, error) {
	from := l.end
	for {
		if at := bytes.IndexByte(l.buffer[from:], '\n'); at >= 0 {
			return l.take(from + at + 1)
		}
		from = len(l.buffer)
		if len(l.buffer)-l.start > maxToken {
			return l.take(len(l.buffer))
		}
		if l.failure != nil {
			if errors.Is(l.failure, io.EOF) && l.end < len(l.buffer) {
				return l.take(len(l.buffer))
			}
			return nil, l.failure
		}
		from -= l.fill()
	}
}

// take sets the end of the token and checks the added bytes.
func (l *lines) take(end int) ([]byte, error) {
	l.number++
	gained := l.buffer[l.end:end]
	l.end = end
	if end-l.start > maxToken || len(trimEnding(l.buffer[l.start:end])) > MaxPayload {
		return nil, &Error{l.number, fmt.Sprintf("a job may have at most %d bytes", MaxPayload)}
	}
	if !utf8.Valid(gained) {
		return nil, &Error{l.number, "want text in UTF-8"}
	}
	return l.buffer[l.start:end], nil
}

// fill reads once from the source. It returns by how many bytes the buffer's content moved
// towards its beginning.
func (l *lines) fill() (moved int) {
	if len(l.buffer) == cap(l.buffer) {
		moved = l.makeRoom()
	}
	for range idleReads {
		n, err := l.source.Read(l.buffer[len(l.buffer):cap(l.buffer)])
		l.buffer = l.buffer[:len(l.buffer)+n]
		l.failure = err
		if n > 0 || err != nil {
			return moved
		}
	}
	l.failure = io.ErrNoProgress
	return moved
}

// makeRoom drops the bytes before the token. If the token fills more than half of the buffer,
// it allocates a larger one.
func (l *lines) makeRoom() (moved int) {
	moved = l.start
	kept := l.buffer[l.start:]
	target := l.buffer[:0]
	if len(kept) > cap(l.buffer)/2 || l.buffer == nil {
		target = make([]byte, 0, max(firstBuffer, 2*cap(l.buffer)))
	}
	l.buffer = target[:len(kept)]
	copy(l.buffer, kept)
	l.start, l.end = 0, l.end-moved
	return moved
}

// trimEnding removes one line ending: LF, or CR and LF, or a CR that ends the
// stream.
func trimEnding(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// plain marks the bytes that a JSON string contains unescaped.
var plain = func() (table [256]bool) {
	for b := range table {
		table[b] = b >= 0x20 && b != '"' && b != '\\'
	}
	return table
}()

// appendString appends text, which is valid UTF-8, as a JSON string.
func appendString(to, text []byte) []byte {
	to = append(to, '"')
	done := 0
	for i, b := range text {
		if plain[b] {
			continue
		}
		to = append(to, text[done:i]...)
		to = appendEscape(to, b)
		done = i + 1
	}
	to = append(to, text[done:]...)
	return append(to, '"')
}

func appendEscape(to []byte, b byte) []byte {
	const digits = "0123456789abcdef"
	switch b {
	case '"', '\\':
		return append(to, '\\', b)
	case '\n':
		return append(to, '\\', 'n')
	case '\r':
		return append(to, '\\', 'r')
	case '\t':
		return append(to, '\\', 't')
	default:
		return append(to, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
	}
}
