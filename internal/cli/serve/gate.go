package serve

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room/gate"
)

// maxTemplate bounds the size of a template.
const maxTemplate = 1 << 20

// openGate returns the public server in front of an upstream, as a part.
func openGate(settings *config.Gate, of *rooms, connections *connlimit.Limiter, log *slog.Logger) (*part, error) {
	opened := noPart()
	options := gate.Options{
		Room: settings.Room, TrustedProxies: settings.TrustedProxies.Prefixes(), SecureCookies: settings.SecureCookies,
		Brand: settings.Brand, Recheck: settings.Recheck, Logger: log,
	}
	for _, name := range settings.Languages {
		tag, err := language.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("gate.languages: %q: %w", name, err)
		}
		options.Languages = append(options.Languages, tag)
	}
	var err error
	if options.Template, err = readTemplate(settings.Template); err != nil {
		return nil, fmt.Errorf("gate.template: %w", err)
	}
	if challenge := settings.Challenge; challenge.Provider != "" {
		siteverify, err := gate.NewSiteverify(gate.SiteverifyOptions{
			Provider: gate.Provider(challenge.Provider), SiteKey: challenge.SiteKey, Secret: string(challenge.Secret), Hostname: challenge.Hostname,
		})
		if err != nil {
			return nil, fmt.Errorf("gate.challenge: %w", err)
		}
		options.Challenge = siteverify
		opened.secrets = func(settings *config.Config) error {
			siteverify.SetSecret(string(settings.Gate.Challenge.Secret))
			return nil
		}
	}
	guard, err := gate.New(of.engine, of.hub, options)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	upstream, err := url.Parse(settings.Upstream)
	if err != nil {
		return nil, fmt.Errorf("gate.upstream: %w", err)
	}
	meter := &gate.Meter{}
	proxy, err := gate.Proxy(upstream, gate.ProxyOptions{
		TrustedProxies: options.TrustedProxies, Host: settings.UpstreamHost, HeaderTimeout: settings.UpstreamTimeout,
		Failed: guard.Failed, Meter: meter, Dial: connections.Dial(gate.Dialer), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	front := ops.Options{Addr: settings.HTTP, Name: "gate", Hosts: []string{ops.AnyHost}, Connections: connections, Logger: log}
	if settings.TLSCert != "" {
		certificate, err := renew.LoadCertificate(settings.TLSCert, settings.TLSKey, log)
		if err != nil {
			return nil, fmt.Errorf("gate.tls_cert: %w", err)
		}
		front.TLS = &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12}
	}
	opened.services = []lifecycle.Service{ops.NewFront(front, guard.Middleware(proxy)), of.engine.NewTuner(settings.Room, meter.Take)}
	return opened, nil
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
