package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk/webhook"
)

func secretOf(letter byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{letter}, 32))
}

// receiver answers requests that are signed with its secret, and refuses others.
type receiver struct {
	*httptest.Server
	secret atomic.Value
}

func newReceiver(t *testing.T, secret string) *receiver {
	r := &receiver{}
	r.secret.Store(secret)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = webhook.Verify(r.secret.Load().(string), request.Header, body, time.Now(), 0)
		}
		switch {
		case errors.Is(err, webhook.ErrHeaders):
			http.Error(w, "not signed", http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// deliver sends two jobs to the receiver, with or without a target's name.
func (s *server) deliver(id, name string, to *receiver) action {
	s.t.Helper()
	target := fmt.Sprintf(`{"name":%q,"url":%q}`, name, to.URL)
	if name == "" {
		target = fmt.Sprintf(`{"url":%q}`, to.URL)
	}
	s.call("POST", "/v1/actions", fmt.Sprintf(`{"id":%q,"tenant":"shop","target":%s,"aggregate":["top-errors"]}`, id, target), http.StatusCreated, nil)
	s.upload(id, ndjson, "{\"n\":1}\n{\"n\":2}\n", 0)
	s.call("POST", "/v1/actions/"+id+"/seal", `{"total":2}`, http.StatusOK, nil)
	return s.finish(id)
}

// restart restarts the server with other secrets in its environment.
func (s *server) restart(secrets string) {
	s.t.Helper()
	s.kill()
	s.env = []string{"SLUICE_WEBHOOK_SECRETS=" + secrets}
	s.start()
}

// An operator rotates the secret: at first both sign, so that receivers can change theirs one by
// one; then the old one is removed.
func TestWebhooksAreSigned(t *testing.T) {
	t.Parallel()
	before, after := secretOf('b'), secretOf('a')
	old, changed := newReceiver(t, before), newReceiver(t, before)
	s := newServer(t)
	s.restart(before)
	if a := s.deliver("before", "", old); a.Succeeded != 2 {
		t.Errorf("with one secret: %+v", a)
	}
	s.restart(after + "," + before)
	changed.secret.Store(after)
	for id, receiver := range map[string]*receiver{"by-old": old, "by-changed": changed} {
		if a := s.deliver(id, "", receiver); a.Succeeded != 2 {
			t.Errorf("%s, while both sign: %+v", id, a)
		}
	}
	s.restart(after)
	if a := s.deliver("changed", "", changed); a.Succeeded != 2 {
		t.Errorf("with the new secret: %+v", a)
	}
	a := s.deliver("old", "", old)
	if top := string(a.Result["top-errors"]); a.Failed != 2 || !strings.Contains(top, "does not match") {
		t.Errorf("with a secret that is gone: %+v %s, want both refused", a, top)
	}
	s.kill() // Only then is its log complete.
	if log := s.log.String(); strings.Contains(log, before) || strings.Contains(log, after) {
		t.Error("the log shows a secret")
	}
}

// setTarget sets where a target is.
func (s *server) setTarget(name, settings string) {
	s.t.Helper()
	s.call("PUT", "/v1/targets/"+name, settings, http.StatusOK, nil)
}

// Targets have secrets of their own, in the file or stored, which sign below their prefix only; one
// has none.
func TestWebhooksOfSingleTargets(t *testing.T) {
	t.Parallel()
	common, own, stored := secretOf('c'), secretOf('o'), secretOf('s')
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	content := "webhook:\n  target_secrets:\n    billing:\n      - " + own + "\n    open: []\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "--config", file)
	s.restart(common)
	billing, search := newReceiver(t, own), newReceiver(t, stored)
	a := s.deliver("no-prefix", "billing", billing)
	if top := string(a.Result["top-errors"]); a.Failed != 2 || !strings.Contains(top, "no url_prefix") {
		t.Errorf("with the target's secret and without its prefix: %+v %s, want no request", a, top)
	}
	s.setTarget("billing", fmt.Sprintf(`{"url_prefix":%q}`, billing.URL))
	s.setTarget("search", fmt.Sprintf(`{"url_prefix":%q,"secrets":[%q]}`, search.URL, stored))
	if a := s.deliver("billing", "billing", billing); a.Succeeded != 2 {
		t.Errorf("with the target's secret: %+v", a)
	}
	if a := s.deliver("search", "search", search); a.Succeeded != 2 {
		t.Errorf("with the stored secret: %+v", a)
	}
	if a := s.deliver("other", "other", newReceiver(t, common)); a.Succeeded != 2 {
		t.Errorf("with the secret of all: %+v", a)
	}
	a = s.deliver("open", "open", newReceiver(t, common))
	if top := string(a.Result["top-errors"]); a.Failed != 2 || !strings.Contains(top, "not signed") {
		t.Errorf("to a target with an empty list: %+v %s, want requests that are not signed", a, top)
	}
	s.refuses("POST", "/v1/actions", "application/json", fmt.Sprintf(`{"tenant":"shop","target":{"name":"billing","url":%q}}`, search.URL), http.StatusUnprocessableEntity)
}

// Without --bulk-webhook-allow no webhook reaches this machine, not even Sluice's own API; and with
// bulk.inline_targets off, none goes to where no operator sends it.
func TestWebhooksReachPublicAddresses(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.command = []string{"serve", "--kafka", s.kafka}
	s.start()
	s.call("POST", "/v1/actions", fmt.Sprintf(`{"id":"a","tenant":"shop","target":{"url":%q},"aggregate":["top-errors"]}`, s.url("/v1/limits")), http.StatusCreated, nil)
	s.upload("a", ndjson, "{\"n\":1}\n", 0)
	s.call("POST", "/v1/actions/a/seal", `{"total":1}`, http.StatusOK, nil)
	a := s.finish("a")
	if top := string(a.Result["top-errors"]); a.Failed != 1 || !strings.Contains(top, "a loopback address that the setting bulk.webhook_allow does not allow") {
		t.Errorf("a webhook to the server itself: %+v %s", a, top)
	}
	s.kill()
	s.env = []string{"SLUICE_BULK_INLINE_TARGETS=false"}
	s.start()
	s.setTarget("billing", `{"url_prefix":"https://billing.example.com"}`)
	s.refuses("POST", "/v1/actions", "application/json", `{"tenant":"shop","target":{"url":"https://billing.example.com/x"}}`, http.StatusUnprocessableEntity)
	s.call("POST", "/v1/actions", `{"tenant":"shop","target":{"name":"billing","url":"/x"}}`, http.StatusCreated, nil)
}
