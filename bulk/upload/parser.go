package upload

import "fmt"

// MaxPayload is the most bytes of one payload, and of the line or record that
// it is read from: 1 MiB.
const MaxPayload = 1 << 20

// Parser yields the payloads of one stream.
type Parser interface {
	// Next returns the next payload, valid until the next call; io.EOF after the
	// last one; an *Error if the stream breaks its format; or the error of the
	// stream itself. After an error, Next returns that error again.
	Next() (payload []byte, err error)
}

// Error says which line of a stream breaks its format, and why.
type Error struct {
	// Line counts the lines of the stream from 1, blank ones too.
	Line int64
	// Why says what is wrong and what would be right.
	Why string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Why) }

var (
	_ Parser = (*NDJSON)(nil)
	_ Parser = (*CSV)(nil)
)
