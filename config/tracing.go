package config

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Tracing are the settings of tracing.
type Tracing struct {
	// Endpoint is the URL of a collector, or Off; see [Tracing.URL].
	Endpoint string
	// SampleRatio is the share of traces that are kept; negative: only traces that
	// callers keep.
	SampleRatio float64
	// Headers are headers of the requests, in the form of OTEL_EXPORTER_OTLP_HEADERS.
	Headers Secret
}

// tracesPath is the path of spans in OTLP over HTTP.
const tracesPath = "/v1/traces"

// URL returns the URL that spans are sent to; empty if none are. An endpoint without
// a path gets that of OTLP.
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

// Ratio returns the share of traces that are kept, 0 to 1.
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

const tracingEndpoint = "tracing.endpoint"

func checkRatio(text string) error {
	if ratio, err := strconv.ParseFloat(text, 64); err != nil || ratio > 1 {
		return errors.New("want from 0 to 1")
	}
	return nil
}

// readTelemetry takes the endpoint from OpenTelemetry's own variables if the setting
// has no value. Variables that ask for gRPC or for another exporter are ignored.
func (c *Config) readTelemetry(environ []string) error {
	if _, set := c.sources[tracingEndpoint]; set {
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
		return &Error{Key: tracingEndpoint, Source: "environment " + name, Why: "want a URL, such as http://127.0.0.1:4318"}
	}
	if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		endpoint = strings.TrimSuffix(endpoint, "/") + tracesPath
	}
	c.Tracing.Endpoint, c.sources[tracingEndpoint] = endpoint, "environment "+name
	return nil
}

// validateTracing checks the headers, without showing them.
func (c *Config) validateTracing() error {
	err := c.Tracing.Headers.Validate()
	if err == nil {
		_, err = c.Tracing.HeaderMap()
	}
	if err != nil {
		return c.wrong("tracing.headers", err.Error())
	}
	return nil
}
