package config

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// State is where the state of rooms and of bulk is: [Embedded], the URL of a Redis or
// Valkey, or [Off] if there is none. However it is printed, the password is not shown.
type State string

// Embedded state is in the data directory.
const Embedded State = "embedded"

// stateSchemes are the schemes of the URLs of states.
var stateSchemes = []string{"redis", "rediss", "valkey", "valkeys", "unix"}

// IsOff reports whether there is no state: no rooms, and no bulk actions.
func (s State) IsOff() bool { return s == Off }

// IsEmbedded reports whether the state is in the data directory.
func (s State) IsEmbedded() bool { return s == Embedded || s == "" }

// URL returns the URL with its password.
func (s State) URL() string { return string(s) }

// Validate returns an error for a text that is no state, without showing a password.
func (s State) Validate() error {
	if s.IsEmbedded() || s.IsOff() {
		return nil
	}
	const want = "want embedded, off, or a URL such as redis://host:6379, rediss://user:password@host:6379 or unix:///run/redis.sock"
	u, err := url.Parse(string(s))
	if err != nil || !slices.Contains(stateSchemes, u.Scheme) {
		return errors.New(want)
	}
	if (u.Scheme == "unix") != (u.Host == "") || u.Fragment != "" || (u.Scheme == "unix" && u.Path == "") {
		return errors.New(want)
	}
	if password, _ := u.User.Password(); password == hiddenSecret {
		return errors.New(hiddenSecret + ` is what "sluice config" prints in place of a password: put the password there`)
	}
	return nil
}

// String shows everything but the password.
func (s State) String() string {
	if s.IsEmbedded() {
		return string(Embedded)
	}
	u, err := url.Parse(string(s))
	if err != nil {
		return hiddenSecret
	}
	if _, has := u.User.Password(); !has {
		return string(s)
	}
	name := url.User(u.User.Username()).String()
	u.User = nil
	scheme, rest, _ := strings.Cut(u.String(), "://")
	return scheme + "://" + name + ":" + hiddenSecret + "@" + rest
}

// GoString implements fmt.GoStringer.
func (s State) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler, for logs in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
