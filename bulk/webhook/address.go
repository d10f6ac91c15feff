package webhook

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// reserved are the networks that are not part of the public Internet, by the registries of
// special-purpose addresses of IANA (RFC 6890 and its updates). Of IPv6, all of 2000::/3 is
// public but what is listed here; everything else is reserved.
var reserved = []struct {
	network netip.Prefix
	kind    string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a private address"}, // between a provider and its customers
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "a reserved address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a reserved address"},    // documentation
	{netip.MustParsePrefix("192.88.99.0/24"), "a reserved address"},  // relays of 6to4
	{netip.MustParsePrefix("198.18.0.0/15"), "a reserved address"},   // benchmarks
	{netip.MustParsePrefix("198.51.100.0/24"), "a reserved address"}, // documentation
	{netip.MustParsePrefix("203.0.113.0/24"), "a reserved address"},  // documentation
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},     // broadcast, too
	{netip.MustParsePrefix("2001::/23"), "a reserved address"},       // protocols, Teredo among them
	{netip.MustParsePrefix("2001:db8::/32"), "a reserved address"},   // documentation
	{netip.MustParsePrefix("3fff::/20"), "a reserved address"},       // documentation
}

var (
	publicIPv6 = netip.MustParsePrefix("2000::/3")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
)

// reservedKind returns what an address is if it is not public, else "".
func reservedKind(a netip.Addr) string {
	for _, r := range reserved {
		if r.network.Contains(a) {
			return r.kind
		}
	}
	if a.Is6() && !publicIPv6.Contains(a) && !nat64.Contains(a) {
		return "a reserved address"
	}
	return ""
}

// embedded returns the IPv4 address that a router may make of an IPv6 address.
func embedded(a netip.Addr) (netip.Addr, bool) {
	bytes := a.As16()
	switch {
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[2:6])), true
	case nat64.Contains(a), localNAT64.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[12:])), true
	}
	return netip.Addr{}, false
}

// addressError is the error of a connection to an address that webhooks must not reach. It
// does not show the address, which may be a secret of the network.
type addressError struct{ kind string }

func (e *addressError) Error() string {
	return e.kind + " that the setting bulk.webhook_allow does not allow: add its network there if webhooks may reach it"
}

// guard decides which addresses connections may be made to.
type guard struct {
	// allow are the networks that are allowed though they are not public.
	allow []netip.Prefix
	// own returns the addresses of this machine.
	own func() ([]net.Addr, error)
}

// control is that of a net.Dialer. It sees the address that the name was resolved to.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("an address that cannot be checked: %w", err)
	}
	return g.check(at.Addr())
}

// check returns an error for an address that is neither public nor allowed. An IPv6 address
// that stands for an IPv4 address is refused if either is.
func (g *guard) check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if inner, found := embedded(a); found {
		if err := g.checkForm(inner); err != nil {
			return err
		}
	}
	return g.checkForm(a)
}

func (g *guard) checkForm(a netip.Addr) error {
	if slices.ContainsFunc(g.allow, func(network netip.Prefix) bool { return network.Contains(a) }) {
		return nil
	}
	if kind := reservedKind(a); kind != "" {
		return &addressError{kind}
	}
	own, err := g.own()
	if err != nil {
		return fmt.Errorf("the addresses of this machine: %w", err)
	}
	for _, address := range own {
		if network, is := address.(*net.IPNet); is {
			if mine, ok := netip.AddrFromSlice(network.IP); ok && mine.Unmap() == a {
				return &addressError{"an address of this machine"}
			}
		}
	}
	return nil
}
