package config

import "time"

// Gate are the settings of a gate in front of an upstream.
type Gate struct {
	// HTTP are the addresses of the gate, or Off; see Config.GateListeners.
	HTTP List
	// Room is the name of the room whose passes let visitors through.
	Room string
	// Upstream is the URL of the server behind the gate.
	Upstream string
	// Sites are those of the file; with them, Room, Upstream, UpstreamHost, Template and Brand
	// are empty, and so are Texts, Theme and Logo.
	Sites []Site
	// TrustedProxies are as those of Room, for visitors of the gate.
	TrustedProxies List
	// Template is the path of the waiting page's template; empty: the one built in.
	Template string
	// TLSCert and TLSKey are the paths of a certificate and its key; empty: no TLS.
	TLSCert, TLSKey string
	// UpstreamHost is sent to the upstream as the host; empty: the host of the visitor's
	// request. UpstreamTimeout is how long the upstream may take to begin an answer.
	UpstreamHost    string
	UpstreamTimeout time.Duration
	// Recheck is how long a pass is believed after it was confirmed; -1: each request asks.
	Recheck time.Duration
	// SecureCookies sets Secure on all cookies.
	SecureCookies bool
	// Brand is a name that the waiting page shows.
	Brand string
	// Texts, Theme and Logo are as those of a Site.
	Texts, Theme List
	Logo         string
	// Languages are those of the waiting page, the default first.
	Languages List
	Challenge Challenge
}

// Challenge is a test that visitors have to pass before they may join.
type Challenge struct {
	// Provider is turnstile, hcaptcha, recaptcha or ProofOfWork; empty: there is no challenge.
	Provider string
	SiteKey  string
	Secret   Secret
	// Hostname is the host that a proof must be for; empty: any.
	Hostname string
	// Fallback is what holds while the provider does not answer: a room.OnStoreFailure or
	// ProofOfWork; empty: that of the room.
	Fallback string
	// MinBits and MaxBits bound how hard puzzles are.
	MinBits, MaxBits int
}

// ProofOfWork is the challenge that needs no provider.
const ProofOfWork = "proof_of_work"

// DefaultGate is the address of "sluice gate".
const DefaultGate = "127.0.0.1:8000"

var gateLanguages = List{"en", "ko", "ja", "zh-Hans"}

// validateTogether checks the settings of a gate that need each other.
func (c *Config) validateTogether() error {
	g := &c.Gate
	if err := g.Challenge.Secret.Validate(); err != nil {
		return c.wrong("gate.challenge_secret", err.Error())
	}
	byProvider := g.Challenge.Provider != "" && g.Challenge.Provider != ProofOfWork
	for _, need := range []struct {
		key  string
		set  bool
		need string
		has  bool
	}{
		{"gate.tls_cert", g.TLSCert != "", "gate.tls_key", g.TLSKey != ""},
		{"gate.tls_key", g.TLSKey != "", "gate.tls_cert", g.TLSCert != ""},
		{"gate.challenge_provider", byProvider, "gate.challenge_site_key", g.Challenge.SiteKey != ""},
		{"gate.challenge_provider", byProvider, "gate.challenge_secret", g.Challenge.Secret != ""},
		{"gate.challenge_secret", g.Challenge.Secret != "", "gate.challenge_provider", g.Challenge.Provider != ""},
	} {
		if need.set && !need.has {
			return c.wrong(need.key, "want "+need.need+" too")
		}
	}
	if !byProvider && g.Challenge.Fallback != "" {
		return c.wrong("gate.challenge_fallback", "want gate.challenge_provider too, of a service that may be away")
	}
	if g.Challenge.MinBits > g.Challenge.MaxBits {
		return c.wrong("gate.challenge_max_bits", "want at least gate.challenge_min_bits")
	}
	if len(g.Sites) > 0 {
		for _, alone := range []struct{ key, value string }{
			{"gate.room", g.Room}, {"gate.upstream", g.Upstream}, {"gate.upstream_host", g.UpstreamHost}, {"gate.template", g.Template}, {"gate.brand", g.Brand},
			{"gate.texts", g.Texts.String()}, {"gate.theme", g.Theme.String()}, {"gate.logo", g.Logo},
		} {
			if alone.value != "" {
				return c.wrong(alone.key, "with gate.sites it belongs into one of them")
			}
		}
	}
	return nil
}

// validateParts refuses a server that has nothing to serve.
func (c *Config) validateParts() error {
	if c.State.IsOff() && !c.Topic.On() {
		return c.wrong("state", "with kafka off too there is nothing to serve")
	}
	return nil
}

const gateNeedsRooms = "a gate needs rooms: want another state than off"

// validateGate refuses a gate without a room or without an upstream.
func (c *Config) validateGate() error {
	const key = "gate.http"
	switch {
	case c.Gate.HTTP.String() == Off:
		return nil
	case c.State.IsOff():
		return c.wrong(key, gateNeedsRooms)
	case len(c.Gate.Sites) > 0:
		return nil
	case c.Gate.Room == "":
		return c.wrong(key, "a gate needs gate.room too, or gate.sites")
	case c.Gate.Upstream == "":
		return c.wrong(key, "a gate needs gate.upstream too")
	}
	return nil
}
