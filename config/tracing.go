package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Tracing says where spans are sent.
type Tracing struct {
	// Endpoint is the URL of a collector, or Off; see [Tracing.URL].
	Endpoint string
	// SampleRatio is the share of traces that are kept; negative: none but those
	// that callers keep.
	SampleRatio float64
	// Headers are those of the requests, as OTEL_EXPORTER_OTLP_HEADERS has them.
	Headers Secret
}

// tracesPath is where OTLP over HTTP has spans.
const tracesPath = "/v1/traces"

// URL is what spans are sent to; empty if none are. Where the endpoint has no
// path, it is that of OTLP.
func (t *Tracing) URL() string {
	if t.Endpoint == Off {
		return ""
	}
	u, err := url.Parse(t.Endpoint)
	if err == nil && strings.Trim(u.Path, "/") == "" {
		u.Path = tracesPath
		return u.String()
	}
	return t.Endpoint
}

// Ratio is the share of traces that are kept, 0 to 1.
func (t *Tracing) Ratio() float64 { return max(0, t.SampleRatio) }

// HeaderMap returns the headers by name.
func (t *Tracing) HeaderMap() (map[string]string, error) {
	headers := map[string]string{}
	if t.Headers == "" {
		return headers, nil
	}
	for i, pair := range strings.Split(string(t.Headers), ",") {
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("header %d: want name=value, with commas between them and %%2C for a comma in a value", i+1)
		}
		headers[name] = value
	}
	return headers, nil
}

func defaultTracing() Tracing { return Tracing{Endpoint: Off, SampleRatio: 1} }

var tracingSettings = []Setting{
	{Key: "tracing.endpoint", Usage: "URL of a collector that traces are sent to as OTLP over HTTP, such as http://127.0.0.1:4318; " +
		"off: none; not set: what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT says, if any",
		field: func(c *Config) any { return &c.Tracing.Endpoint }, check: checkCollector},
	{Key: "tracing.sample_ratio", Zero: "only traces that callers keep",
		Usage: "share of actions that are traced, up to 1; where a request comes with a traceparent, that decides",
		field: func(c *Config) any { return &c.Tracing.SampleRatio }, check: checkRatio},
	{Key: "tracing.headers", Secret: true,
		Usage: "headers of the requests to the collector, such as authorization=Bearer%20TOKEN; name=value, with commas between them, values percent-encoded",
		field: func(c *Config) any { return &c.Tracing.Headers }},
}

func checkCollector(text string) error {
	if text == Off {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return errors.New(`want a URL, such as http://127.0.0.1:4318, or "off"; tracing.headers is for what is secret`)
	}
	return nil
}

func checkRatio(text string) error {
	var ratio float64
	if _, err := fmt.Sscan(text, &ratio); err != nil || ratio > 1 {
		return errors.New("want from 0 to 1")
	}
	return nil
}

// readTelemetry takes the endpoint from OpenTelemetry's own variables, where no
// setting of ours says one. Variables that ask for gRPC, or for another exporter,
// are meant for others.
func (c *Config) readTelemetry(environ []string) error {
	const key = "tracing.endpoint"
	if _, set := c.sources[key]; set {
		return nil
	}
	variables := map[string]string{}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") && value != "" {
			variables[name] = value
		}
	}
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if value := variables[name]; value != "" {
				return name, value
			}
		}
		return "", ""
	}
	_, exporter := first("OTEL_TRACES_EXPORTER")
	_, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	disabled := strings.EqualFold(variables["OTEL_SDK_DISABLED"], "true") || exporter != "" && exporter != "otlp" ||
		protocol != "" && !strings.HasPrefix(protocol, "http/")
	name, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if disabled || endpoint == "" {
		return nil
	}
	if err := checkCollector(endpoint); err != nil || endpoint == Off {
		return &Error{Key: key, Source: "environment " + name, Why: "want a URL, such as http://127.0.0.1:4318"}
	}
	if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		endpoint = strings.TrimSuffix(endpoint, "/") + tracesPath
	}
	c.Tracing.Endpoint, c.sources[key] = endpoint, "environment "+name
	return nil
}

// validateTracing checks the headers, without showing one.
func (c *Config) validateTracing() error {
	const key = "tracing.headers"
	err := c.Tracing.Headers.Validate()
	if err == nil {
		_, err = c.Tracing.HeaderMap()
	}
	if err != nil {
		return &Error{Key: key, Source: c.Source(key), Why: err.Error()}
	}
	return nil
}
