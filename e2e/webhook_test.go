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
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func secretOf(letter byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{letter}, 32))
}

// receiver answers requests that are signed with its secret, and refuses others.
type receiver struct {
	*httptest.Server
	secret string
}

func newReceiver(t *testing.T, secret string) *receiver {
	r := &receiver{secret: secret}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = webhook.Verify(r.secret, request.Header, body, time.Now(), 0)
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

// settingsFile returns a file for --config, and a function that replaces it.
func settingsFile(t *testing.T) (path string, replace func(content string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "sluice.yaml")
	return path, func(content string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// An operator rotates the secret of a running server: at first both sign, so that receivers can
// change theirs one by one; then the old one is removed.
func TestWebhooksAreSigned(t *testing.T) {
	t.Parallel()
	before, after := secretOf('b'), secretOf('a')
	old, changed := newReceiver(t, before), newReceiver(t, after)
	file, replace := settingsFile(t)
	sign := func(with ...string) { replace("webhook:\n  secrets: [" + strings.Join(with, ", ") + "]\n") }
	sign(before)
	s := newServer(t, "--config", file)
	s.start()
	deliveries := 0
	deliver := func(to *receiver) action {
		deliveries++
		return s.deliver(fmt.Sprint("delivery-", deliveries), "", to)
	}
	if a := deliver(old); a.Succeeded != 2 {
		t.Errorf("with one secret: %+v", a)
	}
	sign(after, before)
	until.True(t, "the new secret signs", func() bool { return deliver(changed).Succeeded == 2 })
	if a := deliver(old); a.Succeeded != 2 {
		t.Errorf("while both sign: %+v", a)
	}
	sign(after)
	var refused action
	until.True(t, "the old secret does not sign any more", func() bool {
		refused = deliver(old)
		return refused.Failed == 2
	})
	if top := string(refused.Result["top-errors"]); !strings.Contains(top, "does not match") {
		t.Errorf("with a secret that is gone: %+v %s, want both refused", refused, top)
	}
	if a := deliver(changed); a.Succeeded != 2 {
		t.Errorf("with the new secret: %+v", a)
	}
	s.kill() // only then is its log complete
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
	file, replace := settingsFile(t)
	replace("webhook:\n  target_secrets:\n    billing:\n      - " + own + "\n    open: []\n")
	s := newServer(t, "--config", file)
	s.env = []string{"SLUICE_WEBHOOK_SECRETS=" + common}
	s.start()
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
