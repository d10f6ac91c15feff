package natsstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// The subjects of messages between nodes about the metadata.
const (
	// entrySubject has the announcements of the writer: new entries, and the log's end.
	entrySubject = "sluice.meta.entry"
	// askSubject has requests for the writer to announce itself.
	askSubject = "sluice.meta.ask"
	// writeSubject, followed by a dot and the number of a term, has changes to write.
	// Only the writer of the term subscribes.
	writeSubject = "sluice.meta.write"
)

// Bounds of messages between nodes.
const (
	// maxRequestBytes bounds a change with its guards.
	maxRequestBytes = 5 << 20
	// maxAnnounceBytes bounds the entries whose data is announced; followers read larger
	// entries from the log.
	maxAnnounceBytes = 1 << 20
	// maxReasonBytes bounds the text of an error in an answer.
	maxReasonBytes = 1000
)

const (
	messageFormat byte = 1
	// changeBarrier is the kind of a change that changes nothing. Its answer comes when all
	// earlier entries are known. Only requests have it.
	changeBarrier byte = 3
)

var errMessage = errors.New("not a message between nodes")

// announcement says that an entry is written.
type announcement struct {
	Term     uint64
	Sequence uint64 // the last one
	Data     []byte // of that entry; empty if followers must read it
}

func (a announcement) encode() []byte {
	b := append(make([]byte, 0, len(a.Data)+1+2*binary.MaxVarintLen64), messageFormat)
	b = binary.AppendUvarint(b, a.Term)
	b = binary.AppendUvarint(b, a.Sequence)
	return append(b, a.Data...)
}

func decodeAnnouncement(data []byte) (announcement, error) {
	d, err := decodeMessage(data)
	a := announcement{Term: d.number(), Sequence: d.number(), Data: d.rest}
	if err == nil && (d.failed || a.Term == 0 || a.Sequence < a.Term) {
		err = fmt.Errorf("%w: announcement of entry %d under term %d", errMessage, a.Sequence, a.Term)
	}
	return a, err
}

// writeRequest is a change that a node asks the writer to write.
type writeRequest struct {
	operation
	// Within is how long the change may wait to be written.
	Within time.Duration
}

func (r writeRequest) encode() ([]byte, error) {
	b := append(make([]byte, 0, len(r.Key)+len(r.Value)+100), messageFormat)
	b = binary.AppendUvarint(b, uint64(max(r.Within.Milliseconds(), 0)))
	b = binary.AppendUvarint(b, r.expect)
	b = binary.AppendUvarint(b, uint64(len(r.guards)))
	for _, g := range r.guards {
		b = binary.AppendUvarint(b, uint64(len(g.Key)))
		b = append(b, g.Key...)
		b = binary.AppendUvarint(b, g.Revision)
	}
	if r.barrier {
		b = append(b, changeBarrier)
	} else {
		b = appendChange(b, r.stored)
	}
	if len(b) > maxRequestBytes {
		return nil, fmt.Errorf("a change with its guards takes %d bytes: want at most %d", len(b), maxRequestBytes)
	}
	return b, nil
}

// decodeWriteRequest decodes a request. Its value shares data.
func decodeWriteRequest(data []byte) (writeRequest, error) {
	if len(data) > maxRequestBytes {
		return writeRequest{}, fmt.Errorf("%w: %d bytes", errMessage, len(data))
	}
	d, err := decodeMessage(data)
	if err != nil {
		return writeRequest{}, err
	}
	r := writeRequest{Within: time.Duration(min(d.number(), maxWithinMS)) * time.Millisecond}
	r.expect = d.number()
	guards := d.number()
	for range min(guards, uint64(len(data))) {
		if d.failed {
			break
		}
		r.guards = append(r.guards, topic.Guard{Key: string(d.bytes(maxKeyBytes)), Revision: d.number()})
	}
	if d.failed || uint64(len(r.guards)) != guards {
		return writeRequest{}, fmt.Errorf("%w: incomplete guards", errMessage)
	}
	if len(d.rest) == 1 && d.rest[0] == changeBarrier {
		r.barrier = true
		return r, nil
	}
	changes := 0
	if err := d.changes(func(change stored) { r.stored, changes = change, changes+1 }); err != nil {
		return writeRequest{}, err
	}
	if changes != 1 || r.Revision != 0 {
		return writeRequest{}, fmt.Errorf("%w: %d changes, revision %d", errMessage, changes, r.Revision)
	}
	return r, nil
}

// maxWithinMS bounds how long a change may wait.
const maxWithinMS = uint64(10 * time.Minute / time.Millisecond)

// outcomes are the outcomes of a change in answers, by their code. The first is success, the
// last any other failure, after which the change was not made.
var outcomes = []error{
	nil, topic.ErrConflict, topic.ErrNotFound, errNotWriter, topic.ErrFull, topic.ErrUncertain, errFailed,
}

var (
	// errNotWriter says that a change was not written because this node is not the writer of
	// the metadata: another is, or none at the moment.
	errNotWriter = errors.New("not the writer of the metadata")
	errFailed    = errors.New("not written")
)

func (a answer) encode() []byte {
	code := 0
	for code < len(outcomes)-1 && !errors.Is(a.err, outcomes[code]) {
		code++
	}
	b := binary.AppendUvarint([]byte{messageFormat, byte(code)}, a.sequence)
	if a.err == nil {
		return binary.AppendUvarint(b, 0)
	}
	text := a.err.Error()
	text = text[:min(len(text), maxReasonBytes)]
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func decodeAnswer(data []byte) (answer, error) {
	d, err := decodeMessage(data)
	if err != nil {
		return answer{}, err
	}
	if len(d.rest) == 0 || int(d.rest[0]) >= len(outcomes) {
		return answer{}, fmt.Errorf("%w: an answer without an outcome", errMessage)
	}
	outcome := outcomes[d.rest[0]]
	d.rest = d.rest[1:]
	a := answer{sequence: d.number()}
	text := d.bytes(maxReasonBytes)
	if d.failed || len(d.rest) > 0 {
		return answer{}, fmt.Errorf("%w: an answer with bytes missing or left over", errMessage)
	}
	if outcome != nil {
		a.err = &refusal{outcome, string(text)}
	}
	return a, nil
}

// refusal is the error of another node.
type refusal struct {
	outcome error
	text    string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.outcome }

func decodeMessage(data []byte) (decoder, error) {
	if len(data) == 0 || data[0] != messageFormat {
		return decoder{failed: true}, fmt.Errorf("%w: want it to begin with %d", errMessage, messageFormat)
	}
	return decoder{rest: data[1:]}, nil
}
