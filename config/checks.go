package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/text/language"
)

// check returns the error of a text that is no value of a setting; it says what
// would be right.
type check func(text string) error

// optional lets an empty text pass.
func optional(other check) check { return orWord("", other, "") }

// orWord lets one word pass. The error for other texts is want, or else that of the
// other check.
func orWord(word string, other check, want string) check {
	return func(text string) error {
		if text == word {
			return nil
		}
		err := other(text)
		if want != "" {
			return as(err, want)
		}
		return err
	}
}

// oneOf lets two or more words pass.
func oneOf(words ...string) check {
	last := len(words) - 1
	want := errors.New("want " + strings.Join(words[:last], ", ") + " or " + words[last])
	return func(text string) error {
		if !slices.Contains(words, text) {
			return want
		}
		return nil
	}
}

// upTo bounds a whole number. Its sign was checked when it was read.
func upTo(least, most int) check {
	return func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n > most {
			return fmt.Errorf("want from %d to %s", least, humanize.Comma(int64(most)))
		}
		return nil
	}
}

// between bounds a whole number that may not be 0.
func between(least, most int) check {
	return func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < least || n > most {
			return fmt.Errorf("want from %d to %d", least, most)
		}
		return nil
	}
}

// upToDuration bounds a duration. Its sign was checked when it was read.
func upToDuration(most time.Duration) check {
	return func(text string) error {
		if d, err := time.ParseDuration(text); err != nil || d > most {
			return fmt.Errorf("want at most %s", formatDuration(most))
		}
		return nil
	}
}

// sizes bounds a size.
func sizes(least, most int64, want string) check {
	return func(text string) error {
		if size, err := parseSize(text); err != nil || size < least || size > most {
			return errors.New("want " + want)
		}
		return nil
	}
}

// each checks the values of a list.
func each(value check) check {
	return func(text string) error {
		list := ParseList(text)
		if len(list) > maxList {
			return fmt.Errorf("want at most %d", maxList)
		}
		for _, one := range list {
			if err := value(one); err != nil {
				return fmt.Errorf("%q: %w", one, err)
			}
		}
		return nil
	}
}

func checkPath(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return errors.New("want the path of a directory")
	}
	return nil
}

func checkFile(text string) error {
	info, err := os.Stat(text)
	if err != nil {
		return fmt.Errorf("want the path of a file: %w", err)
	}
	if info.IsDir() {
		return errors.New("want the path of a file, it is a directory")
	}
	return nil
}

func checkAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return as(err, "host:port, such as 127.0.0.1:8080")
}

// checkHostPort checks an address that others connect to.
func checkHostPort(text string) error {
	host, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 || wildcard(host) {
		return errors.New("want host:port that others can connect to, such as node1.example.com:6222")
	}
	return nil
}

func checkHost(text string) error {
	if u, err := url.Parse("//" + text); err != nil || u.Host != text {
		return errors.New("want a host, such as shop.example.com")
	}
	return nil
}

// isServer reports whether a text is the URL of an HTTP server, without a query or a
// password.
func isServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

func checkUpstream(text string) error {
	if !isServer(text) {
		return errors.New("want a URL, such as http://127.0.0.1:3000")
	}
	return nil
}

func checkCollector(text string) error {
	if text != Off && !isServer(text) {
		return errors.New(`want a URL, such as http://127.0.0.1:4318, or "off"; secrets belong in tracing.headers`)
	}
	return nil
}

func checkProxy(text string) error {
	_, err := parsePrefix(text)
	return as(err, "addresses or networks, such as 10.0.0.0/8 or ::1")
}

// checkNetwork checks a network of addresses to connect to.
func checkNetwork(text string) error {
	network, err := parsePrefix(text)
	if err == nil && network.Addr().Is4In6() {
		err = errors.New("it would match nothing")
	}
	return as(err, "networks or addresses, such as 10.0.0.0/8 or ::1; those of IPv4 without ::ffff:")
}

func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if text != "*" && (err != nil || u.Host == "" || text != u.Scheme+"://"+u.Host) {
		return errors.New("want origins, such as https://shop.example.com, or * for all")
	}
	return nil
}

// word is what names of clusters and racks may be of.
var word = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func checkWord(text string) error {
	if !word.MatchString(text) {
		return errors.New(`want 1 to 64 letters, digits, "_" and "-"`)
	}
	return nil
}

// checkBrand bounds what stands on every page.
func checkBrand(text string) error {
	if len(text) > 100 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return errors.New("want at most 100 bytes, on one line")
	}
	return nil
}

// checkLanguages checks the form of a list of languages; the gate knows which ones have texts.
func checkLanguages(text string) error {
	list := ParseList(text)
	for i, name := range list {
		if _, err := language.Parse(name); err != nil || slices.Contains(list[:i], name) {
			return fmt.Errorf("%q: want languages, such as %s, each once", name, gateLanguages)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("want some of %s", gateLanguages)
	}
	return nil
}

// themeColor is a color of a theme; the gate knows the names.
var themeColor = regexp.MustCompile(`^[a-z-]{1,20}=#[0-9a-fA-F]{6}$`)

func checkColor(text string) error {
	if !themeColor.MatchString(text) {
		return errors.New("want colors such as accent=#2f5d62")
	}
	return nil
}

// parsePrefix reads an address or a network; an address is a network of one.
func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

// wildcard reports whether a host to listen on is all addresses of the machine.
func wildcard(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "" || err == nil && address.IsUnspecified()
}

// loopback reports whether a host:port can be reached from this machine only.
func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}
