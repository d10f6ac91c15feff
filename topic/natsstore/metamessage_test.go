package natsstore

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
)

func TestWriteRequests(t *testing.T) {
	for name, r := range map[string]writeRequest{
		"a put":      {operation: operation{stored: stored{Key: "a/b", Value: []byte("value")}, expect: 7}, Within: time.Second},
		"of nothing": {operation: operation{stored: stored{Key: "", Value: []byte{}}}},
		"a deletion": {operation: operation{stored: stored{Key: "\xff", Delete: true}, expect: 1 << 60}, Within: time.Millisecond},
		"a barrier":  {operation: operation{barrier: true}, Within: 10 * time.Second},
		"guards": {operation: operation{
			stored: stored{Key: "key", Delete: true}, expect: 1,
			guards: []topic.Guard{{Key: "", Revision: 0}, {Key: strings.Repeat("k", maxKeyBytes), Revision: 9}},
		}},
		"the largest": {operation: operation{stored: stored{Key: strings.Repeat("k", maxKeyBytes), Value: make([]byte, maxValueBytes)}}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeWriteRequest(data)
			if err != nil || !reflect.DeepEqual(got, r) {
				t.Fatalf("%.200v, want %.200v: %v", got, r, err)
			}
			for cut := range min(len(data), 100) {
				if _, err := decodeWriteRequest(data[:cut]); err == nil {
					t.Fatalf("the first %d of %d bytes are read too", cut, len(data))
				}
			}
		})
	}
}

func TestWriteRequestTooLarge(t *testing.T) {
	r := writeRequest{operation: operation{stored: stored{Key: "key", Value: make([]byte, maxValueBytes)}}}
	for range maxRequestBytes / maxKeyBytes {
		r.guards = append(r.guards, topic.Guard{Key: strings.Repeat("k", maxKeyBytes)})
	}
	if _, err := r.encode(); err == nil {
		t.Fatal("a request of more than 5 MiB is encoded")
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{fmt.Errorf("%w: key %q", topic.ErrConflict, "a"), topic.ErrConflict},
		{topic.ErrNotFound, topic.ErrNotFound},
		{fmt.Errorf("write: %w", errNotWriter), errNotWriter},
		{fmt.Errorf("%w: of the disk", topic.ErrFull), topic.ErrFull},
		{topic.ErrUncertain, topic.ErrUncertain},
		{errors.New(strings.Repeat("something else ", 1000)), errFailed},
	} {
		a, err := decodeAnswer(answer{sequence: 1 << 40, err: c.err}.encode())
		if err != nil || a.sequence != 1<<40 || !errors.Is(a.err, c.want) || (c.want == nil) != (a.err == nil) {
			t.Errorf("%v becomes %+v: %v", c.err, a, err)
		}
		if c.err != nil && !strings.HasPrefix(c.err.Error(), a.err.Error()) {
			t.Errorf("%q becomes %q", c.err, a.err)
		}
	}
}

// FuzzMessages decodes any bytes as each kind of message. A valid message decodes to the same
// after it was encoded again.
func FuzzMessages(f *testing.F) {
	r, err := writeRequest{operation: operation{
		stored: stored{Key: "key", Value: []byte("value")}, expect: 3, guards: []topic.Guard{{Key: "guard", Revision: 4}},
	}, Within: time.Second}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r)
	f.Add(answer{sequence: 5, err: topic.ErrConflict}.encode())
	f.Add(announcement{Term: 3, Sequence: 9, Data: []byte("entry")}.encode())
	f.Add([]byte{messageFormat, 0, 0, 0, changeBarrier})
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeWriteRequest(data); err == nil {
			again, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeWriteRequest(again); err != nil || !reflect.DeepEqual(back, r) {
				t.Fatalf("%+v becomes %+v: %v", r, back, err)
			}
		}
		if a, err := decodeAnswer(data); err == nil {
			back, err := decodeAnswer(a.encode())
			if err != nil || back.sequence != a.sequence || fmt.Sprint(back.err) != fmt.Sprint(a.err) {
				t.Fatalf("%+v becomes %+v: %v", a, back, err)
			}
		}
		if a, err := decodeAnnouncement(data); err == nil {
			back, err := decodeAnnouncement(a.encode())
			if err != nil || back.Term != a.Term || back.Sequence != a.Sequence || !bytes.Equal(back.Data, a.Data) {
				t.Fatalf("%+v becomes %+v: %v", a, back, err)
			}
		}
	})
}
