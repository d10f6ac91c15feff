package natsstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// A node answers the requests of others, as many at once as it may, and with TLS nobody on the
// network reads them.
func TestRequestsBetweenNodes(t *testing.T) {
	for name, secured := range map[string]bool{"with TLS": true, "without TLS": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNodes(t, 2, func(o *Options) {
				if secured {
					authority := newAuthority(t)
					o.Cluster.CertFile, o.Cluster.KeyFile, o.Cluster.CAFile = authority.files(t, authority)
				}
			})
			network := new(tap)
			for _, w := range ns.wires {
				w.copyTo(network)
			}
			ns.start(1, 2)
			ns.waitAlive(2)
			answersRequests(t, ns)
			for _, text := range []string{"a question", "an answer to"} {
				if network.saw(text) == secured {
					t.Errorf("the network sees %q: %v", text, !secured)
				}
			}
			if network.saw(testSecret) {
				t.Error("the network sees the secret")
			}
		})
	}
}

func answersRequests(t *testing.T, ns *nodes) {
	t.Helper()
	one, two := ns.node(1).Cluster(), ns.node(2).Cluster()
	for _, node := range []int32{2, 9} {
		if _, err := one.Ask(t.Context(), node, []byte("is anybody there")); !errors.Is(err, topic.ErrNoAnswer) {
			t.Errorf("node %d does not answer yet: %v", node, err)
		}
	}
	hold := make(chan struct{})
	cancel, err := two.Answer(func(ctx context.Context, request []byte) []byte {
		switch string(request) {
		case "wait":
			select {
			case <-hold:
			case <-ctx.Done():
			}
		case "say much":
			return make([]byte, topic.MaxRequest+1)
		}
		return append([]byte("an answer to "), request...)
	})
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "node 2 answers node 1", func() bool {
		answer, err := one.Ask(t.Context(), 2, []byte("a question"))
		return err == nil && string(answer) == "an answer to a question"
	})
	if _, err := one.Ask(t.Context(), 2, make([]byte, topic.MaxRequest+1)); err == nil || !strings.Contains(err.Error(), "want at most 4194304") {
		t.Errorf("a request that is too large: %v", err)
	}
	if _, err := one.Ask(t.Context(), 2, []byte("say much")); !errors.Is(err, topic.ErrNoAnswer) {
		t.Errorf("an answer that is too large: %v", err)
	}
	var waiting sync.WaitGroup
	for range answersAtOnce { // again and again: a request below may have taken the place of one
		waiting.Go(func() {
			for over := false; !over; {
				_, _ = one.Ask(t.Context(), 2, []byte("wait"))
				select {
				case <-hold:
					over = true
				default:
				}
			}
		})
	}
	until.True(t, "further requests are refused", func() bool {
		_, err := one.Ask(t.Context(), 2, []byte("a question"))
		return errors.Is(err, topic.ErrNoAnswer)
	})
	close(hold)
	waiting.Wait()
	cancel()
	until.True(t, "node 2 answers no more", func() bool {
		_, err := one.Ask(t.Context(), 2, []byte("a question"))
		return errors.Is(err, topic.ErrNoAnswer)
	})
}
