package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// maxList is how many values a list may have.
const maxList = 1_000

// List is a setting of several values: a list in the file, with commas between
// them in the environment and among the flags.
type List []string

// ParseList reads values that have commas between them. It does not check them.
func ParseList(text string) List {
	var list List
	for value := range strings.SplitSeq(text, ",") {
		if value = strings.TrimSpace(value); value != "" {
			list = append(list, value)
		}
	}
	return list
}

func (l List) String() string { return strings.Join(l, ",") }

// Prefixes returns a list of addresses and networks that was checked.
func (l List) Prefixes() []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(l))
	for _, value := range l {
		if prefix, err := parsePrefix(value); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// parsePrefix reads an address as the network that has it alone.
func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

func checkProxies(text string) error {
	return checkList(text, func(value string) error {
		_, err := parsePrefix(value)
		return as(err, "addresses or networks, such as 10.0.0.0/8 or ::1")
	})
}

func checkOrigins(text string) error {
	return checkList(text, func(value string) error {
		u, err := url.Parse(value)
		if value != "*" && (err != nil || u.Host == "" || value != u.Scheme+"://"+u.Host) {
			return errors.New("want origins, such as https://shop.example.com, or * for all")
		}
		return nil
	})
}

func checkList(text string, check func(value string) error) error {
	list := ParseList(text)
	if len(list) > maxList {
		return fmt.Errorf("want at most %d", maxList)
	}
	for _, value := range list {
		if err := check(value); err != nil {
			return fmt.Errorf("%q: %w", value, err)
		}
	}
	return nil
}
