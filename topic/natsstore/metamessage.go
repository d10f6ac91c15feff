package natsstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// The subjects of what nodes tell each other about the metadata.
const (
	// entrySubject has what the writer announces: entries, and that it is there.
	entrySubject = "sluice.meta.entry"
	// askSubject has questions who writes. The answer is an announcement.
	askSubject = "sluice.meta.ask"
	// writeSubject, and a dot and the number of a term, has changes to write.
	// Only who writes listens.
	writeSubject = "sluice.meta.write"
)

// Bounds of what nodes send each other.
const (
	// maxRequestBytes is the most that a change with its guards takes.
	maxRequestBytes = 5 << 20
	// maxAnnounceBytes is how large an entry is announced as a whole; others read a
	// larger one from the log.
	maxAnnounceBytes = 1 << 20
	// maxReasonBytes is how much of an error's text an answer has.
	maxReasonBytes = 1000
)

const (
	messageFormat byte = 1
	// changeBarrier is the kind of a change that changes nothing: it is answered
	// when all that was written before it is known. Only requests have it.
	changeBarrier byte = 3
)

var errMessage = errors.New("not a message between nodes")

// announcement says that an entry is written.
type announcement struct {
	Term     uint64
	Sequence uint64 // the last one
	Data     []byte // of that entry; none: it must be read
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

// decodeWriteRequest returns a request. Its value is a part of data.
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
		return writeRequest{}, fmt.Errorf("%w: guards that are not whole", errMessage)
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

// maxWithinMS bounds how long a change may wait, whoever asks.
const maxWithinMS = uint64(10 * time.Minute / time.Millisecond)

// verdicts are the outcomes of a change that nodes tell each other, by their
// code. The first is that it was made, the last any other failure, after which
// it was not made.
var verdicts = []error{
	nil, topic.ErrConflict, topic.ErrNotFound, errTurnedBack, topic.ErrFull, topic.ErrUncertain, errFailed,
}

var (
	// errTurnedBack says that a change was not written because this node does not
	// write the metadata: another does, or none for now.
	errTurnedBack = errors.New("not the writer of the metadata")
	errFailed     = errors.New("not written")
)

func (a answer) encode() []byte {
	code := 0
	for code < len(verdicts)-1 && !errors.Is(a.err, verdicts[code]) {
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
	if len(d.rest) == 0 || int(d.rest[0]) >= len(verdicts) {
		return answer{}, fmt.Errorf("%w: an answer without a verdict", errMessage)
	}
	verdict := verdicts[d.rest[0]]
	d.rest = d.rest[1:]
	a := answer{sequence: d.number()}
	text := d.bytes(maxReasonBytes)
	if d.failed || len(d.rest) > 0 {
		return answer{}, fmt.Errorf("%w: an answer that does not end where it should", errMessage)
	}
	if verdict != nil {
		a.err = &refusal{verdict, string(text)}
	}
	return a, nil
}

// refusal is an error that another node had.
type refusal struct {
	verdict error
	text    string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.verdict }

func decodeMessage(data []byte) (decoder, error) {
	if len(data) == 0 || data[0] != messageFormat {
		return decoder{failed: true}, fmt.Errorf("%w: want it to begin with %d", errMessage, messageFormat)
	}
	return decoder{rest: data[1:]}, nil
}
