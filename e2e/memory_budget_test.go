//go:build long

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// persistent are requests each of which is sent until it is taken.
type persistent struct {
	t              *testing.T
	server         *server
	taken, refused atomic.Int64
}

func (p *persistent) send(path, contentType string, body []byte, header ...string) {
	for p.t.Context().Err() == nil {
		answer, err := p.server.do("POST", path, contentType, body, header...)
		switch {
		case err != nil || answer.status == http.StatusServiceUnavailable: // an error: refused before the rest was sent
			p.refused.Add(1)
		case answer.status >= 300:
			p.t.Errorf("%s is answered %d %s", path, answer.status, answer.body)
			return
		default:
			p.taken.Add(1)
			return
		}
	}
}

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
	line := append(bytes.Repeat([]byte("1"), 64<<10-1), '\n')
	lines := bytes.Repeat(line, chunk/len(line))
	long := fmt.Appendf(nil, `{"tenant":"rush","type":"rush","payload":%q}`, bytes.Repeat([]byte("x"), largest))
	rushing := rush{Edge: "produce", Address: s.seeds()[0], Clients: 100, Body: largest}.start(t)
	all := persistent{t: t, server: s}
	var sending sync.WaitGroup
	for i := range senders {
		action := fmt.Sprintf("action-%d", i)
		s.call("POST", "/v1/actions", fmt.Sprintf(`{"id":%q,"tenant":"t%d","type":"rush"}`, action, i%4), http.StatusCreated, nil)
		sending.Go(func() {
			all.send("/v1/actions/"+action+"/jobs", "application/x-ndjson", lines, "Upload-Offset", "0")
		})
		sending.Go(func() {
			for range 5 {
				all.send("/v1/jobs", "application/json", long)
			}
		})
	}
	done := make(chan struct{})
	go func() { sending.Wait(); close(done) }()
	most := int64(0)
	until.True(t, "all is taken", func() bool {
		most = max(most, s.memory())
		select {
		case <-done:
			return rushing.counts().Taken > 0
		default:
			return false
		}
	})
	produced := rushing.counts()
	t.Logf("at most %d MiB; %d requests were taken and %d refused, %d records were taken", most>>20, all.taken.Load(), all.refused.Load(), produced.Taken)
	if bound := int64(budget + budget/4); most > bound { // on a busy machine garbage is collected late
		t.Errorf("the process has taken %d MiB, want at most %d", most>>20, bound>>20)
	}
	if all.refused.Load() == 0 || produced.Wrong > 0 {
		t.Errorf("%d requests were refused, want some, and %d records failed, such as %s", all.refused.Load(), produced.Wrong, produced.Example)
	}
}
