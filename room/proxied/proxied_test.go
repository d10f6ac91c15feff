package proxied_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room/proxied"
)

var trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

func request(remote string, forwarded ...string) *http.Request {
	return &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": forwarded, "Forwarded": {"for=6.6.6.6"}}}
}

func TestClient(t *testing.T) {
	for _, test := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"no proxy", "1.2.3.4:5", nil, "1.2.3.4"},
		{"a stranger's header", "1.2.3.4:5", []string{"9.9.9.9"}, "1.2.3.4"},
		{"IPv6", "[2001:db8::1%eth0]:5", nil, "2001:db8::1"},
		{"IPv4 in IPv6", "[::ffff:1.2.3.4]:5", nil, "1.2.3.4"},
		{"one proxy", "10.0.0.1:5", []string{"1.2.3.4"}, "1.2.3.4"},
		{"a proxy that speaks IPv6", "[fd00::1]:5", []string{"2001:db8::1"}, "2001:db8::1"},
		{"what the client wrote is before what the proxy appended", "10.0.0.1:5", []string{"9.9.9.9, 1.2.3.4"}, "1.2.3.4"},
		{"also in a line of its own", "10.0.0.1:5", []string{"9.9.9.9", "1.2.3.4"}, "1.2.3.4"},
		{"two proxies", "10.0.0.1:5", []string{"9.9.9.9, 1.2.3.4,10.0.0.2"}, "1.2.3.4"},
		{"two proxies in two lines", "10.0.0.1:5", []string{"1.2.3.4", "10.0.0.2"}, "1.2.3.4"},
		{"all trusted", "10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"a proxy that says nothing", "10.0.0.1:5", nil, "10.0.0.1"},
		{"with ports", "10.0.0.1:5", []string{"1.2.3.4:80"}, "1.2.3.4"},
		{"IPv6 with brackets and port", "10.0.0.1:5", []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		{"IPv6 with brackets", "10.0.0.1:5", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"unknown", "10.0.0.1:5", []string{"9.9.9.9, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"empty", "10.0.0.1:5", []string{""}, "10.0.0.1"},
		{"no address", "@", []string{"9.9.9.9"}, ""},
	} {
		want, _ := netip.ParseAddr(test.want)
		if got := proxied.Client(request(test.remote, test.forwarded...), trusted); got != want {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
}

// For any headers of a client, its address is the one that the trusted proxies saw.
func TestClientCannotLie(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lies := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"10.0.0.9", "9.9.9.9", ",", "[", "::1", ""}))).Draw(t, "lies")
		chain := "1.2.3.4" + strings.Repeat(", 10.0.0.2", rapid.IntRange(0, 5).Draw(t, "proxies"))
		forwarded := slices.Concat(lies, []string{chain})
		if rapid.Bool().Draw(t, "in one line") {
			forwarded = []string{strings.Join(forwarded, ",")}
		}
		if got := proxied.Client(request("10.0.0.1:5", forwarded...), trusted); got.String() != "1.2.3.4" {
			t.Fatalf("%q: %v", forwarded, got)
		}
	})
}

func TestShared(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "192.168.1.2": true, "172.16.0.1": true, "fd12::1": true, "fe80::1": true, "10.0.0.1": true,
		"192.0.2.1": false, "2001:db8::1": false, "100.64.0.1": false, "203.0.113.9": true, "203.0.113.10": false,
	} {
		if got := proxied.Shared(netip.MustParseAddr(address), []netip.Prefix{netip.MustParsePrefix("203.0.113.9/32")}); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	if proxied.Shared(netip.Addr{}, nil) {
		t.Error("no address is shared")
	}
}

func TestClientReadsSoManyHops(t *testing.T) {
	const proxy = ", 10.0.0.2"
	if got := proxied.Client(request("10.0.0.1:5", "1.2.3.4"+strings.Repeat(proxy, proxied.MaxHops-1)), trusted); got.String() != "1.2.3.4" {
		t.Errorf("within the bound: %v", got)
	}
	if got := proxied.Client(request("10.0.0.1:5", "1.2.3.4"+strings.Repeat(proxy, proxied.MaxHops)), trusted); got.String() != "10.0.0.2" {
		t.Errorf("beyond the bound: %v", got)
	}
}
