package clientnet

import "net/netip"

// WideFactor is how many times as much a network of 48 bits may have as one of its clients.
const WideFactor = 4

// Networks returns the networks that an address counts for, the client's first. An IPv4
// address is a client. Of IPv6 addresses those of 64 common bits are one client, which is
// one subscriber's network; and those of 48, which one customer of a provider often has,
// may together have WideFactor times as much. There are none for an invalid address.
func Networks(address netip.Addr) []netip.Prefix {
	address = address.Unmap().WithZone("")
	switch {
	case !address.IsValid():
		return nil
	case address.Is4():
		return []netip.Prefix{netip.PrefixFrom(address, 32)}
	}
	return []netip.Prefix{netip.PrefixFrom(address, 64).Masked(), netip.PrefixFrom(address, 48).Masked()}
}
