package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// asAdmin returns a client with the admin token, of a listener with TLS or without.
func asAdmin(t *testing.T, at string, secure *tls.Config, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(at), kgo.DialTLSConfig(secure), kgo.SASL(plain.Auth{User: "any", Pass: adminToken}.AsMechanism()), kgo.UnknownTopicRetries(-1),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// learns waits until a client knows exactly these brokers.
func learns(t *testing.T, client *kgo.Client, want ...string) {
	t.Helper()
	var got []string
	until.Succeeds(t, fmt.Sprint("a client learns of the brokers ", want), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		brokers, err := kadm.NewClient(client).ListBrokers(ctx)
		got = got[:0]
		for _, b := range brokers {
			got = append(got, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
		}
		if err == nil && strings.Join(got, " ") != strings.Join(want, " ") {
			err = fmt.Errorf("brokers %v", got)
		}
		return err
	})
}

// One server has a listener without TLS for this machine, and two with TLS: one at the address that a client has connected to,
// and one that is advertised. Clients of each learn its address, and work through it, in groups too.
func TestListenersOfOneServer(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	own, free := authority.Issue("server"), ports.Addrs(t, 2)
	_, everywhere, err := net.SplitHostPort(free[0])
	if err != nil {
		t.Fatal(err)
	}
	s := withAccounts(t, "--state", "off", "--tls-cert-file", own.Cert, "--tls-key-file", own.Key)
	s.command = []string{"serve", "--topic-advertise", "named=localhost:" + strings.TrimPrefix(free[1], "127.0.0.1:"),
		"--kafka", fmt.Sprintf("inner=plain://%s, public=tls://0.0.0.0:%s, named=tls://%s", s.kafka, everywhere, free[1])}
	s.launch()
	listeners := []struct {
		at, told string
		secure   *tls.Config
	}{
		{s.kafka, s.kafka, nil}, {free[0], free[0], authority.Client()}, {free[1], strings.Replace(free[1], "127.0.0.1", "localhost", 1), authority.Client()},
	}
	for i, listener := range listeners {
		client := asAdmin(t, listener.at, listener.secure, kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup(fmt.Sprint("of-", i)),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		learns(t, client, listener.told)
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Errorf("through %s: %v", listener.told, err)
		}
		seen := map[string]bool{}
		until.True(t, "a group has the records so far", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
			return len(seen) == i+1
		})
	}
}

// One server has HTTP without TLS for this machine, and with TLS beside it, for operators and for the public. Both ask for a token, and
// end when the server does.
func TestHTTPListenersOfOneServer(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	own, free := authority.Issue("server"), ports.Addrs(t, 3)
	s := withAccounts(t, "--tls-cert-file", own.Cert, "--tls-key-file", own.Key)
	s.args = append(s.args, "--http", fmt.Sprintf("inner=plain://%s,outer=tls://%s", s.addr, free[0]), "--public", fmt.Sprintf("inner=plain://%s,outer=tls://%s", free[1], free[2]))
	s.start()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: authority.Client()}}
	defer client.CloseIdleConnections()
	for _, test := range []struct {
		url, token string
		want       int
	}{
		{"http://" + s.addr + "/v1/tenants/acme", adminToken, http.StatusOK},
		{"https://" + free[0] + "/v1/tenants/acme", adminToken, http.StatusOK},
		{"http://" + s.addr + "/v1/tenants/acme", "", http.StatusUnauthorized},
		{"https://" + free[0] + "/v1/tenants/acme", "", http.StatusUnauthorized},
		{"http://" + free[0] + "/healthz", "", http.StatusBadRequest},
		{"https://" + free[0] + "/readyz", "", http.StatusOK},
		{"http://" + free[1] + "/healthz", "", http.StatusOK},
		{"https://" + free[2] + "/healthz", "", http.StatusOK},
		{"https://" + free[2] + "/metrics", adminToken, http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, test.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		until.Succeeds(t, fmt.Sprint(test.url, " is answered ", test.want), func() error {
			a, err := send(client, request)
			if err == nil && a.status != test.want {
				err = fmt.Errorf("%d %s", a.status, a.body)
			}
			return err
		})
	}
	s.terminate()
}

// One gate has a plain address for the proxy of this machine, and one with TLS beside it, of one room: who is inside through one of them fills it
// for all, a visitor of the proxy has a place at both, and both end when the gate does.
func TestListenersOfOneGate(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	own, outer := authority.Issue("gate"), ports.Addrs(t, 1)[0]
	s, inner := newGate(t, shop(t).URL, "--capacity", "1", "--tls-cert", own.Cert, "--tls-key", own.Key, "--trusted-proxies", "127.0.0.0/8")
	s.args = append(s.args, "--listen", fmt.Sprintf("inner=plain://%s,outer=tls://%s", strings.TrimPrefix(inner, "http://"), outer))
	s.start()
	for _, at := range []string{outer, strings.TrimPrefix(inner, "http://")} {
		until.Succeeds(t, "the gate listens at "+at, func() error {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	secure := &http.Transport{TLSClientConfig: authority.Client()}
	defer secure.CloseIdleConnections()
	first, second := newPerson(t, "https://"+outer), newPerson(t, inner)
	first.client.Transport = secure
	if !first.inShop("/") {
		t.Fatal("the first visitor is not in the shop, over TLS")
	}
	if second.inShop("/") {
		t.Fatal("the second visitor is in the shop, which is full")
	}
	proxied, err := http.NewRequestWithContext(t.Context(), http.MethodGet, inner+"/cart", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	proxied.Header.Set("X-Forwarded-Proto", "https")
	for _, cookie := range first.client.Jar.Cookies(&url.URL{Scheme: "https", Host: outer, Path: "/"}) {
		proxied.AddCookie(cookie)
	}
	if a, err := send(http.DefaultClient, proxied); err != nil || !strings.Contains(string(a.body), "the shop has /cart, with a pass: true") {
		t.Errorf("the first visitor, through a proxy that ends TLS: %v %d %s", err, a.status, a.body)
	}
	if a := newPerson(t, "http://"+outer).get("/", "text/html"); a.status != http.StatusBadRequest {
		t.Errorf("a visitor without TLS where it is: %d, want 400", a.status)
	}
	first.get("/pay", "text/html")
	until.True(t, "the second visitor is in the shop", func() bool { return second.inShop("/") })
	s.terminate()
}

// Three nodes with accounts tell the clients of each listener its addresses at all of them. The nodes themselves, which publish the
// audit to each other, connect to the first, which has no TLS here.
func TestListenersOfThreeNodes(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	own, outer := authority.Issue("server"), ports.Addrs(t, 3)
	c := &nodes{t: t, peers: ports.Addrs(t, 3)}
	for i := range outer {
		node := c.add()
		node.env = append(node.env, "SLUICE_ACCESS_ADMIN_TOKEN="+adminToken)
		node.args = append(node.args, "--tls-cert-file", own.Cert, "--tls-key-file", own.Key, "--kafka", "inner=plain://"+node.kafka+",outer=tls://"+outer[i])
		node.launch()
	}
	var client *kgo.Client
	for i, node := range c.all {
		learns(t, asAdmin(t, node.kafka, nil), c.brokers()...)
		client = asAdmin(t, outer[i], authority.Client(), kgo.ConsumeTopics("sluice.audit"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		learns(t, client, outer...)
	}
	for i := range c.all {
		made := kmsg.NewCreateTopicsRequestTopic()
		made.Topic, made.NumPartitions, made.ReplicationFactor = fmt.Sprint("made-at-", i+1), 1, -1
		request := kmsg.NewPtrCreateTopicsRequest()
		request.Topics, request.TimeoutMillis = append(request.Topics, made), 60_000
		until.Succeeds(t, "node "+fmt.Sprint(i+1)+" creates a topic", func() error {
			response, err := client.Broker(i+1).RetriableRequest(t.Context(), request)
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(response.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
				return err
			}
			return nil
		})
	}
	var trail strings.Builder
	until.True(t, "each node has published its part of the audit", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { trail.Write(r.Value) })
		return strings.Contains(trail.String(), "made-at-1") && strings.Contains(trail.String(), "made-at-2") && strings.Contains(trail.String(), "made-at-3")
	})
}
