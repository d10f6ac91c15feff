package webhook

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-project/sluice/bulk"
)

func guardOf(own string, allow ...string) *guard {
	g := &guard{own: func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP(own), Mask: net.CIDRMask(24, 32)}}, nil
	}}
	for _, network := range allow {
		g.allow = append(g.allow, netip.MustParsePrefix(network))
	}
	return g
}

func TestAddresses(t *testing.T) {
	const open = ""
	for address, want := range map[string]string{
		"8.8.8.8": open, "2606:4700::1111": open, "100.63.255.255": open, "100.128.0.0": open, "172.15.0.1": open, "172.32.0.1": open,
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "::1": "loopback",
		"10.1.2.3": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private",
		"100.64.0.1": "private", "100.127.255.255": "private", "fd00::1": "private", "fc00::1": "private",
		"169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast",
		"0.0.0.0": "reserved", "0.1.2.3": "reserved", "::": "reserved", "255.255.255.255": "reserved", "240.0.0.1": "reserved",
		"198.18.0.1": "reserved", "198.19.255.255": "reserved", "192.0.0.1": "reserved", "192.0.2.1": "reserved", "198.51.100.1": "reserved",
		"203.0.113.1": "reserved", "192.88.99.1": "reserved", "2001:db8::1": "reserved", "3fff::1": "reserved", "100::1": "reserved",
		"fec0::1": "reserved", "5f00::1": "reserved",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:8.8.8.8": open, "::127.0.0.1": "reserved", "::8.8.8.8": "reserved",
		"2002:7f00:1::": "loopback", "2002:a00:1::1": "private", "2002:808:808::1": open,
		"64:ff9b::127.0.0.1": "loopback", "64:ff9b::169.254.169.254": "link-local", "64:ff9b::8.8.8.8": open,
		"64:ff9b:1::127.0.0.1": "loopback", "64:ff9b:1::8.8.8.8": "reserved", "2001::1": "reserved", "2001:0:7f00:1::": "reserved",
		"9.9.9.9": "an address of this machine", "::ffff:9.9.9.9": "an address of this machine", "64:ff9b::9.9.9.9": "an address of this machine",
	} {
		err := guardOf("9.9.9.9").check(netip.MustParseAddr(address))
		if (err == nil) != (want == open) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", address, err, want)
		}
	}
}

func TestAllowedNetworks(t *testing.T) {
	for _, test := range []struct {
		address, allow string
		open           bool
	}{
		{"127.0.0.1", "127.0.0.0/8", true},
		{"::ffff:127.0.0.1", "127.0.0.0/8", true},
		{"127.0.0.1", "::1/128", false},
		{"::1", "::1/128", true},
		{"10.0.0.1", "127.0.0.0/8", false},
		{"64:ff9b::10.0.0.1", "10.0.0.0/8", true},
		{"64:ff9b::10.0.0.1", "64:ff9b::/96", false}, // of the embedded address, too
		{"64:ff9b:1::8.8.8.8", "64:ff9b:1::/48", true},
		{"64:ff9b:1::10.0.0.1", "64:ff9b:1::/48", false},
		{"fe80::1%eth0", "fe80::/10", true},
		{"9.9.9.9", "9.9.9.9/32", true},
	} {
		if err := guardOf("9.9.9.9", test.allow).check(netip.MustParseAddr(test.address)); (err == nil) != test.open {
			t.Errorf("%s where %s is allowed: %v", test.address, test.allow, err)
		}
	}
	unknown := errors.New("no netlink")
	g := &guard{own: func() ([]net.Addr, error) { return nil, unknown }}
	if err := g.check(netip.MustParseAddr("8.8.8.8")); !errors.Is(err, unknown) {
		t.Errorf("where the machine's own addresses are not known: %v", err)
	}
}

// forms returns an address and all that may stand in it for an IPv4 address.
func forms(a netip.Addr) []netip.Addr {
	a = a.WithZone("").Unmap()
	all := []netip.Addr{a}
	if a.Is4() {
		return all
	}
	b := a.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at:])) }
	switch text := a.StringExpanded(); {
	case strings.HasPrefix(text, "2002:"):
		all = append(all, v4(2))
	case strings.HasPrefix(text, "0064:ff9b:"), strings.HasPrefix(text, "0000:0000:0000:0000:0000:0000:"):
		all = append(all, v4(12))
	case strings.HasPrefix(text, "2001:0000:"): // Teredo: a server, and a client
		all = append(all, v4(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	return all
}

// No address that passes is of a class that the standard library knows as not public.
func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{"8.8.8.8", "127.0.0.1", "::1", "::ffff:10.0.0.1", "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2001:0:1::", "fe80::1", "2606:4700::1"} {
		f.Add(netip.MustParseAddr(seed).AsSlice())
	}
	g := guardOf("9.9.9.9")
	f.Fuzz(func(t *testing.T, bytes []byte) {
		a, ok := netip.AddrFromSlice(bytes)
		if !ok || g.check(a) != nil {
			return
		}
		for _, form := range forms(a) {
			if form.IsPrivate() || form.IsLoopback() || form.IsLinkLocalUnicast() || form.IsMulticast() || form.IsUnspecified() || !form.IsGlobalUnicast() {
				t.Errorf("%s passed, and is or embeds %s", a, form)
			}
		}
	})
}

// The check is of the address that a name was resolved to, and its error is final.
func TestPrivateTargets(t *testing.T) {
	var requests atomic.Int32
	server := newServer(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	byName := "http://user:secret@localhost:" + u.Port() + "/?token=secret"
	none := newHandler(t, Options{Allow: []netip.Prefix{}})
	for _, target := range []string{server.URL, byName} {
		_, err := none.Handle(t.Context(), jobTo(target))
		if got, _ := kindOf(err); got != finalKind || requests.Load() != 0 {
			t.Fatalf("%s: %v is %s, after %d requests", target, err, got, requests.Load())
		}
		if text := err.Error(); !strings.Contains(text, "a loopback address that the setting bulk.webhook_allow does not allow") || strings.Contains(text, "secret") {
			t.Fatalf("text = %q", text)
		}
	}
	if _, err := newHandler(t, Options{}).Handle(t.Context(), jobTo(byName)); err != nil || requests.Load() != 1 {
		t.Fatalf("an allowed target: %v, after %d requests", err, requests.Load())
	}
}

func TestProxies(t *testing.T) {
	var through atomic.Value
	proxy := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		through.Store(r.URL.String())
		_, _ = io.WriteString(w, "1")
	})
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := newProxies(newGuarded(1, nil), 1, func(r *http.Request) (*url.URL, error) {
		switch r.URL.Hostname() {
		case "127.0.0.1":
			return nil, nil
		case "wrong.example":
			return nil, errors.New("invalid proxy address user:secret@")
		}
		return at, nil
	})
	h := newHandler(t, Options{Transport: transport})
	if result, err := h.Handle(t.Context(), jobTo("http://target.example/x")); err != nil || string(result) != "1" || through.Load() != "http://target.example/x" {
		t.Errorf("through the proxy: %q, %v, %v", result, err, through.Load())
	}
	if _, err := h.Handle(t.Context(), jobTo(proxy.URL)); !errors.Is(err, bulk.SkipRetry) {
		t.Errorf("a target without a proxy: %v; want its address checked", err)
	}
	if _, err := h.Handle(t.Context(), jobTo("http://wrong.example/")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a proxy that is no URL: %v", err)
	}
}

// A redirect from a public target to a private address is not followed either.
func TestRedirectToPrivateAddress(t *testing.T) {
	var requests atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer inside.Close()
	_, err := attempt(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
	})
	if got, _ := kindOf(err); got != finalKind || requests.Load() != 0 {
		t.Fatalf("%v, after %d requests", err, requests.Load())
	}
}
