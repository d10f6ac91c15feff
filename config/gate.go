package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Gate says what stands in front of an upstream.
type Gate struct {
	// HTTP is the address of the gate, or Off.
	HTTP string
	// Room is the name of the room whose passes let through.
	Room string
	// Upstream is the URL of what is behind the gate.
	Upstream string
	// TrustedProxies are as those of Room, for visitors of the gate.
	TrustedProxies List
	// Template is the path of the waiting page's template; empty: the one built in.
	Template string
	// TLSCert and TLSKey are the paths of a certificate and its key; empty: no TLS.
	TLSCert, TLSKey string
	// UpstreamHost is sent to the upstream as the host; empty: what the visitor has
	// asked for. UpstreamTimeout is how long it may take to begin an answer.
	UpstreamHost    string
	UpstreamTimeout time.Duration
	// SecureCookies sets Secure on all cookies.
	SecureCookies bool
	// Brand is a name that the waiting page shows.
	Brand string
	// Languages are those of the waiting page, the default first.
	Languages List
	Challenge Challenge
}

// Challenge is what a visitor has to pass before it may join.
type Challenge struct {
	// Provider is turnstile, hcaptcha or recaptcha; empty: there is no challenge.
	Provider string
	SiteKey  string
	Secret   Secret
	// Hostname is what a proof must be made for; empty: anything.
	Hostname string
}

// DefaultGate is the address of "sluice gate".
const DefaultGate = "127.0.0.1:8000"

func defaultGate() Gate {
	return Gate{HTTP: Off, UpstreamTimeout: time.Minute, Languages: slices.Clone(gateLanguages)}
}

var (
	gateLanguages      = List{"en", "ko"}
	challengeProviders = []string{"turnstile", "hcaptcha", "recaptcha"}
)

var gateSettings = []Setting{
	{Key: "gate.http", Usage: "address of a gate in front of an upstream, host:port; off: none",
		field: func(c *Config) any { return &c.Gate.HTTP }, check: checkGate},
	{Key: "gate.room", Usage: "name of the room whose passes let through the gate",
		field: func(c *Config) any { return &c.Gate.Room }, check: optional(room.ValidName)},
	{Key: "gate.upstream", Usage: "URL of what is behind the gate, such as http://127.0.0.1:3000",
		field: func(c *Config) any { return &c.Gate.Upstream }, check: optional(checkUpstream)},
	{Key: "gate.upstream_host", Usage: "host that is sent to the upstream; without it: what the visitor has asked for",
		field: func(c *Config) any { return &c.Gate.UpstreamHost }, check: optional(checkHost)},
	{Key: "gate.upstream_timeout", Usage: "how long the upstream may take to begin an answer",
		field: func(c *Config) any { return &c.Gate.UpstreamTimeout }},
	{Key: "gate.trusted_proxies", Usage: "addresses and networks of proxies in front of the gate whose X-Forwarded-For and X-Forwarded-Proto are believed",
		field: func(c *Config) any { return &c.Gate.TrustedProxies }, check: checkProxies},
	{Key: "gate.template", Usage: "path of a template of the waiting page, instead of the one that is built in",
		field: func(c *Config) any { return &c.Gate.Template }, check: optional(checkFile)},
	{Key: "gate.tls_cert", Usage: "path of the gate's TLS certificate, with those between it and its root, in PEM; none: no TLS",
		field: func(c *Config) any { return &c.Gate.TLSCert }, check: optional(checkFile)},
	{Key: "gate.tls_key", Usage: "path of the certificate's key, in PEM",
		field: func(c *Config) any { return &c.Gate.TLSKey }, check: optional(checkFile)},
	{Key: "gate.secure_cookies", Usage: "set Secure on all cookies, for a proxy in front that ends TLS and does not say so in X-Forwarded-Proto",
		field: func(c *Config) any { return &c.Gate.SecureCookies }},
	{Key: "gate.brand", Usage: "name that the waiting page shows, such as the shop's",
		field: func(c *Config) any { return &c.Gate.Brand }, check: optional(checkBrand)},
	{Key: "gate.languages", Usage: "languages of the waiting page, the default first: en, ko",
		field: func(c *Config) any { return &c.Gate.Languages }, check: checkLanguages},
	{Key: "gate.challenge_provider", Usage: "who tells people from programs before they may join: turnstile, hcaptcha or recaptcha; without it: nobody",
		field: func(c *Config) any { return &c.Gate.Challenge.Provider }, check: optional(checkProvider)},
	{Key: "gate.challenge_site_key", Usage: "the challenge's public key, from the provider",
		field: func(c *Config) any { return &c.Gate.Challenge.SiteKey }},
	{Key: "gate.challenge_secret", Secret: true, Usage: "the challenge's secret, from the provider",
		field: func(c *Config) any { return &c.Gate.Challenge.Secret }},
	{Key: "gate.challenge_hostname", Usage: "host that a challenge must have been passed for; without it: any",
		field: func(c *Config) any { return &c.Gate.Challenge.Hostname }, check: optional(checkHost)},
}

func checkGate(text string) error {
	if text == Off {
		return nil
	}
	if err := checkAddress(text); err != nil {
		return errors.New(`want host:port, such as 127.0.0.1:8000, or "off"`)
	}
	return nil
}

func checkUpstream(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return errors.New("want a URL, such as http://127.0.0.1:3000")
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

func checkHost(text string) error {
	if u, err := url.Parse("//" + text); err != nil || u.Host != text {
		return errors.New("want a host, such as shop.example.com")
	}
	return nil
}

func checkLanguages(text string) error {
	list := ParseList(text)
	for i, language := range list {
		if !slices.Contains(gateLanguages, language) || slices.Contains(list[:i], language) {
			return fmt.Errorf("%q: want some of %s, each once", language, gateLanguages)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("want some of %s", gateLanguages)
	}
	return nil
}

func checkProvider(text string) error {
	if !slices.Contains(challengeProviders, text) {
		return errors.New("want turnstile, hcaptcha or recaptcha")
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

// validateTogether checks the settings of a gate that need each other.
func (c *Config) validateTogether() error {
	g := &c.Gate
	if err := g.Challenge.Secret.Validate(); err != nil {
		return &Error{Key: "gate.challenge_secret", Source: c.Source("gate.challenge_secret"), Why: err.Error()}
	}
	for _, need := range []struct {
		key  string
		set  bool
		need string
		has  bool
	}{
		{"gate.tls_cert", g.TLSCert != "", "gate.tls_key", g.TLSKey != ""},
		{"gate.tls_key", g.TLSKey != "", "gate.tls_cert", g.TLSCert != ""},
		{"gate.challenge_provider", g.Challenge.Provider != "", "gate.challenge_site_key", g.Challenge.SiteKey != ""},
		{"gate.challenge_provider", g.Challenge.Provider != "", "gate.challenge_secret", g.Challenge.Secret != ""},
		{"gate.challenge_secret", g.Challenge.Secret != "", "gate.challenge_provider", g.Challenge.Provider != ""},
	} {
		if need.set && !need.has {
			return &Error{Key: need.key, Source: c.Source(need.key), Why: "want " + need.need + " too"}
		}
	}
	return nil
}

// validateParts refuses a server of nothing.
func (c *Config) validateParts() error {
	if c.State.IsOff() && c.Topic.Kafka == Off {
		return &Error{Key: "state", Source: c.Source("state"), Why: "with kafka off too there is nothing to serve"}
	}
	return nil
}

// validateGate refuses a gate that has no room or nothing behind it.
func (c *Config) validateGate() error {
	const key = "gate.http"
	switch {
	case c.Gate.HTTP == Off:
		return nil
	case c.State.IsOff():
		return &Error{Key: key, Source: c.Source(key), Why: "a gate needs rooms: want another state than off"}
	case c.Gate.Room == "":
		return &Error{Key: key, Source: c.Source(key), Why: "a gate needs gate.room too"}
	case c.Gate.Upstream == "":
		return &Error{Key: key, Source: c.Source(key), Why: "a gate needs gate.upstream too"}
	}
	return nil
}
