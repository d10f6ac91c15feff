package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A frame is a request or an answer on the wire: its size in four bytes, a
// header, and a body.
const (
	sizeBytes = 4
	// minRequestBytes is the shortest header: kind, version, correlation id.
	minRequestBytes = 8
	// maxFrame bounds the settings of answers, whose size on the wire has 31 bits.
	maxFrame = 1 << 29
	// largeRequest is the size above which requests are large: more than a batch of 1 MiB and its envelope.
	largeRequest = 1<<20 + 16<<10
	// firstBytes is how much of a large one must have arrived before it gets its memory.
	firstBytes = 64 << 10
)

// errMalformed means that a frame violates the protocol.
var errMalformed = errors.New("malformed request")

// frameSize returns the length of the frame that begins with the given bytes.
func frameSize(prefix []byte, most int) (int, error) {
	size := int32(binary.BigEndian.Uint32(prefix))
	if size < minRequestBytes {
		return 0, fmt.Errorf("%w: size %d, want at least %d", errMalformed, size, minRequestBytes)
	}
	if int(size) > most {
		return 0, fmt.Errorf("%w: size %d, want at most %d", errMalformed, size, most)
	}
	return int(size), nil
}

// header is the beginning of each request.
type header struct {
	key, version int16
	correlation  int32
	client       string
	// size is the length of the request, elements the number of elements and tags in its body.
	size, elements int
}

// answerRoom is how many bytes of the answer there are for each byte of a request.
const answerRoom = 16

// room returns about how long the answer is: the buffer for a large answer that grows with it would
// take five times its memory.
func (h *header) room() int { return min(h.elements*answerCost, h.size*answerRoom) }

// parseHeader returns the kind, the version and the correlation id of a request, which have the
// same position in all versions.
func parseHeader(frame []byte) header {
	return header{
		key:         int16(binary.BigEndian.Uint16(frame)),
		version:     int16(binary.BigEndian.Uint16(frame[2:])),
		correlation: int32(binary.BigEndian.Uint32(frame[4:])),
		size:        len(frame),
	}
}

// parseRequest decodes the request in a frame, and adds the client's id and the number of elements to
// the header. Records and other bytes are not copied.
func parseRequest(h *header, frame []byte) (kmsg.Request, error) {
	request := kmsg.RequestForKey(h.key)
	request.SetVersion(h.version)
	reader := kbin.Reader{Src: frame[minRequestBytes:]}
	if client := reader.NullableString(); client != nil {
		h.client = *client
	}
	if request.IsFlexible() {
		skipTags(&reader)
	}
	if err := reader.Complete(); err != nil {
		return nil, fmt.Errorf("%w: header of %s: %w", errMalformed, kmsg.NameForKey(h.key), err)
	}
	var err error
	if h.elements, err = shapes[h.key].check(h.version, request.IsFlexible(), reader.Src); err == nil {
		err = request.ReadFrom(reader.Src)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s version %d: %w", errMalformed, kmsg.NameForKey(h.key), h.version, err)
	}
	return request, nil
}

// skipTags skips tagged fields. It ends at the end of the bytes, whatever number of tags they
// declare.
func skipTags(reader *kbin.Reader) {
	for left := reader.Uvarint(); left > 0 && reader.Ok(); left-- {
		reader.Uvarint()
		reader.Span(int(reader.Uvarint()))
	}
}

// appendAnswer appends the frame of an answer.
func appendAnswer(to []byte, correlation int32, response kmsg.Response) []byte {
	at := len(to)
	to = append(to, 0, 0, 0, 0)
	to = binary.BigEndian.AppendUint32(to, uint32(correlation))
	// The header of this answer never has tags, so that a client that knows
	// no version yet can read it.
	if response.IsFlexible() && response.Key() != keyAPIVersions {
		to = append(to, 0)
	}
	to = response.AppendTo(to)
	binary.BigEndian.PutUint32(to[at:], uint32(len(to)-at-sizeBytes))
	return to
}
