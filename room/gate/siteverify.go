package gate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
)

const (
	// ChallengeTime is how long a challenge may take to decide.
	ChallengeTime = 5 * time.Second
	// reachEvery is how often a provider is asked whether it answers at all.
	reachEvery = 10 * time.Second
	// maxVerdict is the most bytes of a provider's answer that are read.
	maxVerdict = 64 << 10
	// maxProof is the most bytes of a proof that are sent on: the longest provider's have
	// about 2 KiB.
	maxProof = 8 << 10
)

// Provider is a service that tells people from programs.
type Provider string

// The providers, all of the siteverify protocol.
const (
	Turnstile Provider = "turnstile"
	HCaptcha  Provider = "hcaptcha"
	ReCAPTCHA Provider = "recaptcha"
)

// provider holds the differences between providers.
type provider struct {
	verify, script, class, field string
	origins                      []string
}

var providers = map[Provider]provider{
	Turnstile: {
		verify: "https://challenges.cloudflare.com/turnstile/v0/siteverify",
		script: "https://challenges.cloudflare.com/turnstile/v0/api.js",
		class:  "cf-turnstile", field: "cf-turnstile-response",
		origins: []string{"https://challenges.cloudflare.com"},
	},
	HCaptcha: {
		verify: "https://api.hcaptcha.com/siteverify",
		script: "https://js.hcaptcha.com/1/api.js",
		class:  "h-captcha", field: "h-captcha-response",
		origins: []string{"https://hcaptcha.com", "https://*.hcaptcha.com"},
	},
	ReCAPTCHA: {
		verify: "https://www.google.com/recaptcha/api/siteverify",
		script: "https://www.google.com/recaptcha/api.js",
		class:  "g-recaptcha", field: "g-recaptcha-response",
		origins: []string{"https://www.google.com/recaptcha/", "https://www.gstatic.com/recaptcha/", "https://recaptcha.google.com/recaptcha/"},
	},
}

// Siteverify is a [Challenge] of a provider that checks proofs by a POST of
// "secret", "response" and "remoteip", and answers {"success":true}.
type Siteverify struct {
	provider provider
	options  SiteverifyOptions
	secret   atomic.Value // string

	mu sync.Mutex
	// Probed is when the provider was last asked about no visitor, unreached why it did not answer.
	probed    time.Time
	unreached error
}

var _ Challenge = (*Siteverify)(nil)

// SiteverifyOptions are the settings of a Siteverify.
type SiteverifyOptions struct {
	// Provider is required.
	Provider Provider
	// SiteKey is public, Secret is not. Required; both come from the provider.
	SiteKey, Secret string
	// Hostname is the host for which the provider must say that the proof was made, so
	// that proofs of other sites are refused. Default: any.
	Hostname string
	// URL is where proofs are checked. Default: the provider's.
	URL string
	// Transport sends the requests. Default: http.DefaultTransport.
	Transport http.RoundTripper
}

// NewSiteverify returns a challenge, or an error that says which option is wrong.
func NewSiteverify(options SiteverifyOptions) (*Siteverify, error) {
	p, known := providers[options.Provider]
	switch {
	case !known:
		return nil, fmt.Errorf("challenge provider %q: want turnstile, hcaptcha or recaptcha", options.Provider)
	case options.SiteKey == "":
		return nil, errors.New("the challenge needs the site key that its provider gave you")
	case options.Secret == "":
		return nil, errors.New("the challenge needs the secret that its provider gave you")
	}
	if options.URL != "" {
		u, err := url.Parse(options.URL)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
			return nil, errors.New("the challenge's URL: want http:// or https:// with a host")
		}
		p.verify = options.URL
	}
	options.Transport = cmp.Or(options.Transport, http.DefaultTransport)
	s := &Siteverify{provider: p, options: options}
	s.SetSecret(options.Secret)
	return s, nil
}

// SetSecret replaces the secret, from the next proof on.
func (s *Siteverify) SetSecret(secret string) { s.secret.Store(secret) }

// Passed implements [Challenge]: a request without a proof has not passed. A form without one is
// of a visitor whose widget may have made none because the provider is away.
func (s *Siteverify) Passed(ctx context.Context, r *http.Request, who Newcomer) (bool, error) {
	proof := r.PostForm.Get(s.provider.field)
	switch {
	case r.PostForm == nil || len(proof) > maxProof:
		return false, nil
	case proof == "":
		return false, s.reached(ctx)
	}
	return s.verify(ctx, proof, who.Client)
}

// reached returns an error if the provider does not answer: it asks at most once in reachEvery,
// about a proof that nobody has made.
func (s *Siteverify) reached(ctx context.Context) error {
	s.mu.Lock()
	err, ask := s.unreached, time.Since(s.probed) >= reachEvery
	if ask {
		s.probed = time.Now()
	}
	s.mu.Unlock()
	if !ask {
		return err
	}
	_, err = s.verify(ctx, "none", netip.Addr{})
	s.mu.Lock()
	s.unreached = err
	s.mu.Unlock()
	return err
}

// verify asks the provider about a proof.
func (s *Siteverify) verify(ctx context.Context, proof string, client netip.Addr) (bool, error) {
	form := url.Values{"secret": {s.secret.Load().(string)}, "response": {proof}}
	if client.IsValid() {
		form.Set("remoteip", client.String())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.provider.verify, bytes.NewBufferString(form.Encode()))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := s.options.Transport.RoundTrip(request)
	if err != nil {
		return false, fmt.Errorf("the challenge's provider does not answer: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxVerdict))
	if err != nil {
		return false, fmt.Errorf("the challenge's provider does not answer: %w", err)
	}
	return s.verdict(response.StatusCode, body)
}

func (s *Siteverify) verdict(status int, body []byte) (bool, error) {
	var verdict struct {
		Success  *bool    `json:"success"`
		Hostname string   `json:"hostname"`
		Errors   []string `json:"error-codes"`
	}
	if err := json.Unmarshal(body, &verdict); err != nil || verdict.Success == nil {
		return false, fmt.Errorf("the challenge's provider answered %d, without a verdict", status)
	}
	for _, code := range verdict.Errors {
		// The visitor is not at fault then.
		if code == "missing-input-secret" || code == "invalid-input-secret" || code == "sitekey-secret-mismatch" || code == "internal-error" {
			return false, fmt.Errorf("the challenge's provider refuses to check: %s", code)
		}
	}
	return *verdict.Success && (s.options.Hostname == "" || verdict.Hostname == s.options.Hostname), nil
}

// Widget implements [Challenge].
func (s *Siteverify) Widget(_ context.Context, who Newcomer) (*Widget, error) {
	script, lang := s.provider.script, who.Words.Lang
	if s.options.Provider != Turnstile {
		script += "?hl=" + url.QueryEscape(lang)
	}
	return &Widget{
		HTML: template.HTML(`<div class="` + s.provider.class + `" data-sitekey="` + template.HTMLEscapeString(s.options.SiteKey) +
			`" data-language="` + template.HTMLEscapeString(lang) + `"></div>`),
		Script: script, Origins: s.provider.origins,
	}, nil
}
