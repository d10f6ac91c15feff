package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A view of the events, made by who may read all of them, shows those of one tenant: a token for the view alone reads it, and not its source.
func TestViewOfATenantsEvents(t *testing.T) {
	t.Parallel()
	s := withAccounts(t, "--topic-partitions", "1")
	s.start()
	for _, id := range []string{"other", "acme"} { // each tenant has an action of its name; events are published in order
		if a := s.as(adminToken, "POST", "/v1/actions", `{"id":"`+id+`","tenant":"`+id+`","type":"echo"}`); a.status != http.StatusCreated {
			t.Fatalf("%d: %s", a.status, a.body)
		}
	}
	client := func(secret string, options ...kgo.Opt) *kgo.Client {
		return s.connect(append(options, kgo.SASL(plain.Auth{User: "any", Pass: secret}.AsMechanism()))...)
	}
	read := func(secret, topic string) (keys []string, err error) {
		reader := client(secret, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		defer reader.Close()
		ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
		defer cancel()
		for len(keys) == 0 && err == nil {
			fetches := reader.PollFetches(ctx)
			err = fetches.Err()
			fetches.EachRecord(func(r *kgo.Record) { keys = append(keys, string(r.Key)) })
		}
		return keys, err
	}
	token := func(name, topics string) string {
		var made struct{ Secret string }
		if err := s.as(adminToken, "POST", "/v1/tokens", `{"name":"`+name+`","roles":["consumer"],"topics":[`+topics+`]}`).json(&made); err != nil {
			t.Fatal(err)
		}
		return made.Secret
	}
	alone := token("alone", `"acme-events"`)
	admin := kadm.NewClient(client(adminToken))
	of, where := "sluice.bulk.events", `headers.tenant == "acme"`
	until.Succeeds(t, "the view is made", func() error { // the first event makes its source
		_, err := admin.CreateTopic(t.Context(), -1, -1, map[string]*string{"sluice.view.of": &of, "sluice.view.where": &where}, "acme-events")
		return err
	})
	if keys, err := read(alone, "acme-events"); err != nil || strings.Join(keys, ",") != "acme" {
		t.Errorf("the view: %v, %v", keys, err)
	}
	if keys, err := read(alone, of); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("its source: %v, %v", keys, err)
	}
}
