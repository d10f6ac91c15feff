package api_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
)

const visitorsPath = "/v1/rooms/shop/visitors"

// The token of a request is found where the contract says; the header goes before the others.
func TestWhereTokensAre(t *testing.T) {
	for _, test := range []struct {
		path, body, want string
		headers          []string
	}{
		{visitorsPath, "", "in-header", []string{"Sluice-Token", "in-header"}},
		{visitorsPath + "?sluice_token=in-query", "", "in-query", nil},
		{visitorsPath, "", "in-cookie", []string{"Cookie", "a=b; sluice_token=in-cookie"}},
		{visitorsPath + "?sluice_token=q", `{"visitor":"alice"}`, "h", []string{"Sluice-Token", "h", "Cookie", "sluice_token=c", "Origin", "http://shop.example"}},
	} {
		engine := newFake()
		f := newFixture(t, engine)
		f.do(200, "POST", test.path, test.body, test.headers...)
		key := ""
		if test.body != "" {
			key = "alice"
		}
		if want := fmt.Sprintf("Enter shop %s 192.0.2.1 %s", key, test.want); len(engine.calls) != 1 || engine.calls[0] != want {
			t.Errorf("%v: calls %q, want %q", test, engine.calls, want)
		}
	}
}

func TestRefusedTokens(t *testing.T) {
	for _, test := range []struct {
		err          error
		code, detail string
	}{
		{engine.ErrNoToken, api.CodeNoToken, "a visitor's key needs a token that the shop has signed: send it in the header Sluice-Token, or leave the key out"},
		{fmt.Errorf("%w: it has expired", engine.ErrBadToken), api.CodeBadToken, "the visitor's token is not valid: it has expired"},
	} {
		engine := newFake()
		engine.fail["Enter"] = test.err
		f := newFixture(t, engine)
		if a := f.do(403, "POST", visitorsPath, `{"visitor":"alice"}`); a.problem.Code != test.code || a.problem.Detail != test.detail {
			t.Errorf("%+v", a.problem)
		}
	}
}

// Whoever can name a visitor must not have that visitor's place: a page that anybody may open,
// clients behind a proxy, and those of a public listener need a token even if there are no keys for
// tokens.
func TestKeysFromThePublicNeedTokens(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // those of the test's requests
	const alice = `{"visitor":"alice"}`
	for _, headers := range [][]string{{"Origin", "https://shop.example"}, {"X-Forwarded-For", "198.51.100.7"}} {
		engine := newFake()
		f := newFixture(t, engine, api.WithOrigins("*"), api.WithTrustedProxies(proxies))
		if a := f.do(403, "POST", visitorsPath, alice, headers...); a.problem.Code != api.CodeNoToken || len(engine.calls) != 0 {
			t.Errorf("%v: %+v, calls %q", headers, a.problem, engine.calls)
		}
		f.do(200, "POST", visitorsPath, "", headers...)
		f.do(200, "POST", visitorsPath, alice, append(headers, "Sluice-Token", "a.b.c")...)
	}
	f := newFixture(t, newFake(), api.WithTrustedProxies(proxies))
	f.do(200, "POST", visitorsPath, alice) // a program beside the proxy
	f.handler = f.handler.(*edge.API).Public()
	f.do(403, "POST", visitorsPath, alice)
	f.do(200, "POST", visitorsPath, "")
}
