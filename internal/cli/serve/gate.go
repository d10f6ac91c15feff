package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/gate"
)

// maxTemplate bounds the size of a template.
const maxTemplate = 1 << 20

// openGate returns the public server in front of upstreams, as a part, which is empty if there is none. Its
// metrics are those of the operators' server.
func openGate(all *config.Config, of *rooms, server *ops.Server, bounds *bounds, tracer trace.TracerProvider, log *slog.Logger) (*part, error) {
	settings, opened := &all.Gate, noPart()
	if settings.HTTP.String() == config.Off {
		return opened, nil
	}
	metrics := gate.NewMetrics()
	server.Registry().MustRegister(metrics)
	languages, err := languagesOf(settings)
	if err != nil {
		return nil, err
	}
	options := gate.Options{
		TrustedProxies: settings.TrustedProxies.Prefixes(), SecureCookies: settings.SecureCookies, Recheck: settings.Recheck, Languages: languages,
		Join: bounds.load.Join, Metrics: metrics, TracerProvider: tracer, Logger: log,
	}
	siteverify, err := openChallenge(settings, of.engine, &options)
	if err != nil {
		return nil, err
	}
	sites := &sites{
		proxy: gate.ProxyOptions{
			TrustedProxies: options.TrustedProxies, HeaderTimeout: settings.UpstreamTimeout, Meter: &gate.Meter{},
			Metrics: metrics, Dial: bounds.connections.Dial(gate.Dialer), Logger: log,
		},
	}
	var guard *gate.Gate
	sites.proxy.Failed = func(w http.ResponseWriter, r *http.Request, status int) { guard.Failed(w, r, status) }
	if options.Sites, err = sites.of(settings); err != nil {
		return nil, all.OfSites(err)
	}
	if guard, err = gate.New(of.engine, of.hub, options); err != nil {
		return nil, all.OfSites(err)
	}
	opened.secrets = func(settings *config.Config) error {
		renewed, err := sites.of(&settings.Gate)
		if err == nil {
			err = guard.SetSites(renewed)
		}
		if err != nil {
			return settings.OfSites(err)
		}
		if siteverify != nil {
			siteverify.SetSecret(string(settings.Gate.Challenge.Secret))
		}
		return nil
	}
	fronts, err := openFronts(all, server, bounds, guard.Middleware(http.HandlerFunc(noUpstream)), log)
	if err != nil {
		return nil, err
	}
	opened.services = append(opened.services, fronts...)
	opened.services = append(opened.services, of.engine.NewTuner(sites.proxy.Meter.Take))
	return opened, nil
}

// openFronts returns a server of the gate's handler at each of its addresses.
func openFronts(all *config.Config, server *ops.Server, bounds *bounds, handler http.Handler, log *slog.Logger) (fronts []lifecycle.Service, err error) {
	var secure security
	if all.Gate.TLSCert != "" {
		if secure.config, err = renew.ServerTLS(all.Gate.TLSCert, all.Gate.TLSKey, nil, log); err != nil {
			return nil, fmt.Errorf("gate.tls_cert: %w", err)
		}
		warnOfCertificate(server, "certificate of the gate", secure.config.GetCertificate)
	}
	for _, l := range all.GateListeners() {
		fronts = append(fronts, ops.NewFront(ops.Options{
			Addr: l.Addr, Name: strings.TrimSpace("gate " + l.Name), Hosts: []string{ops.AnyHost}, TLS: secure.of(l), Connections: bounds.connections, Logger: log,
		}, handler))
	}
	return fronts, nil
}

// openChallenge sets the challenge of a gate, if there is one, and returns that of a provider; nil:
// none.
func openChallenge(settings *config.Gate, e *engine.Engine, options *gate.Options) (*gate.Siteverify, error) {
	challenge := &settings.Challenge
	work, err := gate.NewProofOfWork(e, challenge.MinBits, challenge.MaxBits)
	if err != nil {
		return nil, err
	}
	switch challenge.Provider {
	case "":
		return nil, nil
	case config.ProofOfWork:
		options.Challenge = work
		return nil, nil
	}
	siteverify, err := gate.NewSiteverify(gate.SiteverifyOptions{
		Provider: gate.Provider(challenge.Provider), SiteKey: challenge.SiteKey, Secret: string(challenge.Secret), Hostname: challenge.Hostname,
	})
	if err != nil {
		return nil, fmt.Errorf("gate.challenge: %w", err)
	}
	if challenge.Fallback == config.ProofOfWork {
		options.Challenge = gate.WithBackup(siteverify, work, options.Logger)
	} else {
		options.Challenge, options.ChallengeFailure = siteverify, room.OnStoreFailure(challenge.Fallback)
	}
	return siteverify, nil
}

func languagesOf(settings *config.Gate) (tags []language.Tag, _ error) {
	for _, name := range settings.Languages {
		tag, err := language.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("gate.languages: %q: %w", name, err)
		}
		tags = append(tags, tag)
	}
	return tags, nil
}

// noUpstream answers requests of sites that another proxy has.
func noUpstream(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the gate only answers checks for this site: docs/room/proxies.md", http.StatusMisdirectedRequest)
}

// sites makes the sites of a gate from their settings.
type sites struct {
	proxy gate.ProxyOptions
	// proxies are those in use, so that they keep their connections when the settings are read
	// again.
	proxies map[upstream]http.Handler
}

// upstream is a server behind a gate, with the host that it is sent.
type upstream struct{ url, host string }

// of returns the sites. An error begins with the key of what is wrong, below gate.
func (s *sites) of(settings *config.Gate) ([]gate.Site, error) {
	used := map[upstream]http.Handler{}
	var made []gate.Site
	for i, site := range settings.AllSites() {
		of := gate.Site{
			Hosts: site.Hosts, Room: site.Room, Brand: site.Brand, WaitingStatus: site.WaitingStatus, Crawlers: gate.Crawlers(site.Crawlers),
			PassClients: site.PassClients, Returns: site.Returns, Theme: site.Theme,
		}
		for _, rule := range site.Rules {
			of.Rules = append(of.Rules, gate.SiteRule(rule))
		}
		var err error
		if of.Template, err = readTemplate(site.Template); err != nil {
			return nil, fmt.Errorf("sites[%d].template: %w", i, err)
		}
		if of.Texts, err = readTexts(site.Texts); err != nil {
			return nil, fmt.Errorf("sites[%d].texts: %w", i, err)
		}
		if of.Logo, err = readLogo(site.Logo); err != nil {
			return nil, fmt.Errorf("sites[%d].logo: %w", i, err)
		}
		if to := (upstream{site.Upstream, site.UpstreamHost}); to.url != "" {
			if used[to], err = s.proxyTo(to); err != nil {
				return nil, fmt.Errorf("sites[%d].upstream: %w", i, err)
			}
			of.Upstream = used[to]
		}
		made = append(made, of)
	}
	s.proxies = used
	return made, nil
}

// proxyTo returns the proxy to an upstream.
func (s *sites) proxyTo(to upstream) (http.Handler, error) {
	if proxy := s.proxies[to]; proxy != nil {
		return proxy, nil
	}
	target, err := url.Parse(to.url)
	if err != nil {
		return nil, err
	}
	options := s.proxy
	options.Host = to.host
	return gate.Proxy(target, options)
}

// readTexts reads the texts of languages.
func readTexts(paths []string) (texts []*gate.Words, _ error) {
	for _, path := range paths {
		text, err := input.ReadAll(path, nil, gate.MaxWords)
		if err != nil {
			return nil, err
		}
		words, err := gate.ParseWords(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		texts = append(texts, words)
	}
	return texts, nil
}

// readLogo reads an image; empty if none is set.
func readLogo(path string) (template.URL, error) {
	if path == "" {
		return "", nil
	}
	image, err := input.ReadAll(path, nil, gate.MaxLogo)
	if err != nil {
		return "", err
	}
	return gate.ParseLogo(path, image)
}

// readTemplate reads the waiting page's template; nil if none is set.
func readTemplate(path string) (*template.Template, error) {
	if path == "" {
		return nil, nil
	}
	text, err := input.ReadAll(path, nil, maxTemplate)
	if err != nil {
		return nil, err
	}
	return gate.ParseTemplate(path, string(text))
}
