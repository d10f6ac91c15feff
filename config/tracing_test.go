package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/config"
)

func TestWhereTracesAreSent(t *testing.T) {
	const both = "OTEL_EXPORTER_OTLP_ENDPOINT=http://base:4318/otlp/"
	tests := []struct {
		name    string
		args    []string
		environ []string
		want    string
		source  string
	}{
		{"nowhere", nil, nil, "", "default"},
		{"a collector", []string{"--tracing-endpoint=http://127.0.0.1:4318"}, nil, "http://127.0.0.1:4318/v1/traces", "flag --tracing-endpoint"},
		{"a collector with a slash", []string{"--tracing-endpoint=https://collector/"}, nil, "https://collector/v1/traces", "flag --tracing-endpoint"},
		{"a path", []string{"--tracing-endpoint=https://collector/in"}, nil, "https://collector/in", "flag --tracing-endpoint"},
		{"ours before OpenTelemetry's", nil, []string{both, "SLUICE_TRACING_ENDPOINT=http://ours:1"}, "http://ours:1/v1/traces", "environment SLUICE_TRACING_ENDPOINT"},
		{"off before OpenTelemetry's", []string{"--tracing-endpoint=off"}, []string{both}, "", "flag --tracing-endpoint"},
		{"OpenTelemetry's", nil, []string{both}, "http://base:4318/otlp/v1/traces", "environment OTEL_EXPORTER_OTLP_ENDPOINT"},
		{"that of traces first", nil, []string{both, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://traces:1/in"}, "http://traces:1/in", "environment OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		{"over HTTP", nil, []string{both, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_TRACES_EXPORTER=otlp"}, "http://base:4318/otlp/v1/traces", "environment OTEL_EXPORTER_OTLP_ENDPOINT"},
		{"by gRPC it is meant for others", nil, []string{both, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "", "default"},
		{"traces by gRPC", nil, []string{both, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"}, "", "default"},
		{"no exporter", nil, []string{both, "OTEL_TRACES_EXPORTER=none"}, "", "default"},
		{"disabled", nil, []string{both, "OTEL_SDK_DISABLED=TRUE"}, "", "default"},
		{"an empty variable", nil, []string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, "", "default"},
	}
	for _, test := range tests {
		c, err := config.Load(flags(t, test.args...), test.environ)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got, source := c.Tracing.URL(), c.Source("tracing.endpoint"); got != test.want || source != test.source {
			t.Errorf("%s: %q by %s, want %q by %s", test.name, got, source, test.want, test.source)
		}
	}
}

func TestTheShareOfTraces(t *testing.T) {
	for text, want := range map[string]float64{"1": 1, "0.25": 0.25, "0": 0} {
		c, err := config.Load(nil, []string{"SLUICE_TRACING_SAMPLE_RATIO=" + text})
		if err != nil || c.Tracing.Ratio() != want {
			t.Errorf("%s: %v, %v", text, c.Tracing.Ratio(), err)
		}
	}
}

func TestHeadersOfTraces(t *testing.T) {
	tests := map[string]map[string]string{
		"":                             {},
		"authorization=Bearer%20a%2Cb": {"authorization": "Bearer a,b"},
		"x-team = a b , x-key=c=d, y=": {"x-team": "a b", "x-key": "c=d", "y": ""},
	}
	for text, want := range tests {
		c, err := config.Load(nil, []string{"SLUICE_TRACING_HEADERS=" + text})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := c.Tracing.HeaderMap(); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	c, err := config.Load(nil, []string{"SLUICE_TRACING_HEADERS=authorization=hush"})
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := c.WriteYAML(&printed); err != nil || strings.Contains(printed.String()+fmt.Sprintf("%v %+v %#v", c.Tracing, c.Tracing, c.Tracing), "hush") {
		t.Errorf("the headers are shown: %v\n%s", err, &printed)
	}
}

func TestWrongSettingsOfTracing(t *testing.T) {
	tests := map[string]string{
		"SLUICE_TRACING_ENDPOINT=127.0.0.1:4318":            "environment SLUICE_TRACING_ENDPOINT: tracing.endpoint: ",
		"SLUICE_TRACING_ENDPOINT=http://u:p@collector":      "environment SLUICE_TRACING_ENDPOINT: tracing.endpoint: ",
		"SLUICE_TRACING_SAMPLE_RATIO=1.1":                   `environment SLUICE_TRACING_SAMPLE_RATIO: tracing.sample_ratio: "1.1": want from 0 to 1`,
		"SLUICE_TRACING_SAMPLE_RATIO=-1":                    `environment SLUICE_TRACING_SAMPLE_RATIO: tracing.sample_ratio: "-1": want more than 0, or 0: only traces that callers keep`,
		"SLUICE_TRACING_HEADERS=hush":                       "environment SLUICE_TRACING_HEADERS: tracing.headers: header 1: want name=value",
		"SLUICE_TRACING_HEADERS=a=b,hush hush=1":            "environment SLUICE_TRACING_HEADERS: tracing.headers: header 2: want name=value",
		"SLUICE_TRACING_HEADERS=a=hush%0A":                  "environment SLUICE_TRACING_HEADERS: tracing.headers: header 1: want name=value",
		"SLUICE_TRACING_HEADERS=(hidden)":                   "environment SLUICE_TRACING_HEADERS: tracing.headers: (hidden) is what",
		"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318":        "environment OTEL_EXPORTER_OTLP_ENDPOINT: tracing.endpoint: want a URL",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=off":            "environment OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: tracing.endpoint: want a URL",
		"OTEL_EXPORTER_OTLP_ENDPOINT=unix:///run/collector": "environment OTEL_EXPORTER_OTLP_ENDPOINT: tracing.endpoint: want a URL",
	}
	for variable, want := range tests {
		_, err := config.Load(nil, []string{variable})
		var wrong *config.Error
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %s", variable, err, want)
		}
	}
}
