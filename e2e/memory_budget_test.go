package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Chunks of uploads, long bodies and large records come all at once, of more bytes than a small memory budget. They
// wait or are refused, the process stays within its budget, and what was refused is taken when it comes again.
func TestMemoryBudget(t *testing.T) {
	const (
		budget  = 256 << 20
		chunk   = 16 << 20
		senders = 16
		largest = 900_000
	)
	s := startServer(t, "--memory-budget", strconv.Itoa(budget))
	s.newTopic("rush", rushPartitions)
	var most, refused, taken atomic.Int64
	// send sends a request until it is taken.
	send := func(path, contentType string, body []byte, header ...string) {
		for t.Context().Err() == nil {
			answer, err := s.do("POST", path, contentType, body, header...)
			switch {
			case err != nil || answer.status == http.StatusServiceUnavailable: // an error: refused before the rest was sent
				refused.Add(1)
			case answer.status >= 300:
				t.Errorf("%s is answered %d %s", path, answer.status, answer.body)
				return
			default:
				taken.Add(1)
				return
			}
		}
	}
	line := append(bytes.Repeat([]byte("1"), 64<<10-1), '\n')
	lines := bytes.Repeat(line, chunk/len(line))
	long := fmt.Appendf(nil, `{"tenant":"rush","type":"rush","payload":%q}`, bytes.Repeat([]byte("x"), largest))
	rushing := rush{Edge: "produce", Address: s.seeds()[0], Clients: 100, Body: largest}.start(t)
	var all sync.WaitGroup
	for i := range senders {
		action := fmt.Sprintf("action-%d", i)
		s.call("POST", "/v1/actions", fmt.Sprintf(`{"id":%q,"tenant":"t%d","type":"rush"}`, action, i%4), http.StatusCreated, nil)
		all.Go(func() {
			send("/v1/actions/"+action+"/jobs", "application/x-ndjson", lines, "Upload-Offset", "0")
		})
		all.Go(func() {
			for range 5 {
				send("/v1/jobs", "application/json", long)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	until.True(t, "all is taken", func() bool {
		most.Store(max(most.Load(), s.memory()))
		select {
		case <-done:
			return rushing.counts().Taken > 0
		default:
			return false
		}
	})
	produced := rushing.counts()
	t.Logf("at most %d MiB; %d requests were taken and %d refused, %d records were taken", most.Load()>>20, taken.Load(), refused.Load(), produced.Taken)
	if bound := int64(budget + budget/4); most.Load() > bound { // on a busy machine garbage is collected late
		t.Errorf("the process has taken %d MiB, want at most %d", most.Load()>>20, bound>>20)
	}
	if refused.Load() == 0 {
		t.Error("nothing was refused: the test sends too little")
	}
	if produced.Wrong > 0 {
		t.Errorf("%d records failed, such as %s", produced.Wrong, produced.Example)
	}
	if err := s.connect().ProduceSync(t.Context(), &kgo.Record{Topic: "rush", Value: []byte("x")}).FirstErr(); err != nil {
		t.Error(err)
	}
}
