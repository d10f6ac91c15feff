package natsstore

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A repeated read takes the answer to its first request if that arrives first. Otherwise a
// slow replica could never answer.
func TestReadAnsweredLate(t *testing.T) {
	s := openStore(t, Options{})
	respond := func(to *nats.Msg, status string, data ...byte) {
		m := nats.NewMsg(to.Reply)
		m.Data = data
		if status != "" {
			m.Header.Set("Status", status)
		}
		if err := to.RespondMsg(m); err != nil {
			t.Error(err)
		}
	}
	var mu sync.Mutex
	var requests []*nats.Msg
	err := subscribe(s.conn, directGet+"late", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if requests = append(requests, m); len(requests) == 2 {
			respond(requests[0], "", 1)
			respond(requests[0], "", 2)
			respond(requests[0], "204")
		}
	})
	if err == nil {
		err = s.conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.reader.get(t.Context(), "late", request{Sequence: 1}, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, m := range messages {
		got = append(got, m.Data...)
	}
	if string(got) != "\x01\x02" {
		t.Errorf("read %v, want the answer to the first request, 1 and 2", got)
	}
}
