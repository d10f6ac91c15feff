package clientnet

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestNetworks(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":        "[192.0.2.1/32]",
		"::ffff:192.0.2.1": "[192.0.2.1/32]",
		"2001:db8:1:2::3":  "[2001:db8:1:2::/64 2001:db8:1::/48]",
		"fe80::1%eth0":     "[fe80::/64 fe80::/48]",
		"::ffff:0:0:0:0:1": "[0:0:ffff::/64 0:0:ffff::/48]",
		"2001:db8:ffff::1": "[2001:db8:ffff::/64 2001:db8:ffff::/48]",
	} {
		if got := fmt.Sprint(Networks(netip.MustParseAddr(address))); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := Networks(netip.Addr{}); len(got) != 0 {
		t.Errorf("no address: %v", got)
	}
}
