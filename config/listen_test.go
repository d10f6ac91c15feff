package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/topic"
)

// withTLS returns the settings of a certificate, which is not read here.
func withTLS(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"tls.cert_file": write(t, "a"), "tls.key_file": write(t, "b")}
}

func TestListeners(t *testing.T) {
	file := write(t, "kafka:\n  - inner=plain://127.0.0.1:9092\n  - outer=tls://0.0.0.0:9093\ntopic:\n  advertise: outer=broker.example.com:9094\n")
	for name, test := range map[string]struct {
		settings  map[string]string
		listeners []config.Listener
		told      topic.Advertised
	}{
		"one":                           {map[string]string{}, []config.Listener{{Addr: "127.0.0.1:9092"}}, topic.Advertised{Host: "127.0.0.1", Port: 9092}},
		"one with TLS on all addresses": {withTLS(t), []config.Listener{{Addr: "0.0.0.0:9092", TLS: true}}, topic.Advertised{Port: 9092}},
		"one that is advertised": {
			map[string]string{"topic.advertise": "broker.example.com:9"},
			[]config.Listener{{Addr: "127.0.0.1:9092", Advertise: "broker.example.com:9"}}, topic.Advertised{Host: "broker.example.com", Port: 9},
		},
		"several": {
			withTLS(t), []config.Listener{{Name: "inner", Addr: "127.0.0.1:9092"}, {Name: "outer", Addr: "0.0.0.0:9093", Advertise: "broker.example.com:9094", TLS: true}},
			topic.Advertised{Host: "127.0.0.1", Port: 9092, Listeners: map[string]string{"inner": "127.0.0.1:9092", "outer": "broker.example.com:9094"}},
		},
		"several, as clients connect": {
			map[string]string{"kafka": "outer=plain://:9093, inner=plain://127.0.0.1:9092"}, []config.Listener{{Name: "outer", Addr: ":9093"}, {Name: "inner", Addr: "127.0.0.1:9092"}},
			topic.Advertised{Port: 9093, Listeners: map[string]string{"inner": "127.0.0.1:9092", "outer": ""}},
		},
		"off": {map[string]string{"kafka": "off"}, nil, topic.Advertised{}},
	} {
		environ := variables(test.settings)
		switch name {
		case "one with TLS on all addresses":
			environ = append(environ, "SLUICE_KAFKA=0.0.0.0:9092")
		case "several":
			environ = append(environ, "SLUICE_CONFIG="+file)
		}
		c, err := config.Load(nil, environ)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := c.Listeners(); !reflect.DeepEqual(got, test.listeners) {
			t.Errorf("%s: %+v, want %+v", name, got, test.listeners)
		}
		test.told.HTTP = "http://127.0.0.1:8080"
		if c.TLS.On() {
			test.told.HTTP = "https://127.0.0.1:8080"
		}
		if got := c.Advertised(); !reflect.DeepEqual(got, test.told) {
			t.Errorf("%s: %+v are advertised, want %+v", name, got, test.told)
		}
	}
}

func TestWrongListeners(t *testing.T) {
	const form = "want host:port, such as 127.0.0.1:9092, or up to 16, each with a name of its own and plain or tls, such as internal=plain://127.0.0.1:9092, public=tls://0.0.0.0:9093"
	for kafka, test := range map[string]struct{ advertise, key, why string }{
		"9092":                            {"", "kafka", form},
		"127.0.0.1:9092,127.0.0.1:9093":   {"", "kafka", `"127.0.0.1:9092": ` + form},
		"a=plain://127.0.0.1:1,off":       {"", "kafka", `"off": ` + form},
		"a=127.0.0.1:1":                   {"", "kafka", form},
		"tls://127.0.0.1:1":               {"", "kafka", form},
		"a=ssl://127.0.0.1:1":             {"", "kafka", form},
		"a b=tls://127.0.0.1:1":           {"", "kafka", form},
		"a=tls://127.0.0.1":               {"", "kafka", form},
		"a=plain://:1,a=plain://:2":       {"", "kafka", `"a=plain://:2": ` + form},
		strings.Repeat("x=tls://:1,", 17): {"", "kafka", form},
		"a=tls://127.0.0.1:1":             {"", "kafka", `"a=tls://127.0.0.1:1": want tls.cert_file and tls.key_file too`},
		"127.0.0.1:1":                     {"a=b:9092", "topic.advertise", `"a=b:9092": want HOST:PORT, each at most once`},
		"a=plain://:1,b=plain://:2":       {"b:9092", "topic.advertise", `"b:9092": want a=HOST:PORT, b=HOST:PORT, each at most once`},
		"a=plain://:1":                    {"a=b:1,a=b:2", "topic.advertise", `"a=b:2": want a=HOST:PORT, each`},
		"a=plain://:2":                    {"a=:9092", "topic.advertise", "want host:port that others can connect to, such as broker.example.com:9092 or public=broker.example.com:9093"},
	} {
		environ := []string{"SLUICE_KAFKA=" + kafka, "SLUICE_TOPIC_ADVERTISE=" + test.advertise}
		_, err := config.Load(nil, environ)
		var wrong *config.Error
		if !errors.As(err, &wrong) || wrong.Key != test.key || !strings.Contains(wrong.Why, test.why) {
			t.Errorf("%v: %v, want an *Error of %s: %s", environ, err, test.key, test.why)
		}
	}
}

func TestHTTPListeners(t *testing.T) {
	for name, test := range map[string]struct {
		http      string
		listeners []config.Listener
		told      string
		inline    bool
	}{
		"one":            {"127.0.0.1:8080", []config.Listener{{Addr: "127.0.0.1:8080", TLS: true}}, "https://127.0.0.1:8080", true},
		"plain here too": {"inner=plain://127.0.0.1:8080, outer=tls://10.0.0.1:8443", []config.Listener{{Name: "inner", Addr: "127.0.0.1:8080"}, {Name: "outer", Addr: "10.0.0.1:8443", TLS: true}}, "https://10.0.0.1:8443", false},
		"only here":      {"a=plain://127.0.0.1:1,b=tls://127.0.0.1:2", []config.Listener{{Name: "a", Addr: "127.0.0.1:1"}, {Name: "b", Addr: "127.0.0.1:2", TLS: true}}, "http://127.0.0.1:1", true},
	} {
		certificate := write(t, "a")
		environ := append(variables(withTLS(t)), "SLUICE_HTTP="+test.http, "SLUICE_PUBLIC="+test.http, "SLUICE_GATE_HTTP="+test.http,
			"SLUICE_GATE_ROOM=shop", "SLUICE_GATE_UPSTREAM=http://shop", "SLUICE_GATE_TLS_CERT="+certificate, "SLUICE_GATE_TLS_KEY="+certificate)
		c, err := config.Load(nil, environ)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for of, got := range map[string][]config.Listener{"http": c.HTTPListeners(), "public": c.PublicListeners(), "gate.http": c.GateListeners()} {
			if !reflect.DeepEqual(got, test.listeners) {
				t.Errorf("%s: %s is %+v, want %+v", name, of, got, test.listeners)
			}
		}
		if got := c.Advertised().HTTP; got != test.told || c.InlineTargets() != test.inline {
			t.Errorf("%s: operators are told %s, want %s; inline targets: %v", name, got, test.told, c.InlineTargets())
		}
	}
	for name, settings := range map[string]map[string]string{"TLS of operators": withTLS(t), "no TLS": nil} {
		c, err := config.Load(nil, append(variables(settings), "SLUICE_GATE_HTTP=:80", "SLUICE_GATE_ROOM=shop", "SLUICE_GATE_UPSTREAM=http://shop"))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.GateListeners(); !reflect.DeepEqual(got, []config.Listener{{Addr: ":80"}}) {
			t.Errorf("%s: without a certificate of its own, the gate has %+v", name, got)
		}
	}
	if off := config.Default(); off.PublicListeners() != nil || off.GateListeners() != nil {
		t.Errorf("public off: %+v, gate off: %+v", off.PublicListeners(), off.GateListeners())
	}
	for setting, want := range map[string]string{
		"GATE_HTTP=a=tls://127.0.0.1:1": `gate.http: "a=tls://127.0.0.1:1": want gate.tls_cert and gate.tls_key too`,
		"GATE_HTTP=a":                   `gate.http: "a": want host:port, such as 127.0.0.1:8000, or up to 16, each with a name of its own and plain or tls, such as internal=plain://127.0.0.1:8000, public=tls://0.0.0.0:443, or "off"`,
		"HTTP=off":                      `http: "off": want host:port, such as 127.0.0.1:8080, or up to 16, each with a name of its own and plain or tls, such as internal=plain://127.0.0.1:8080, public=tls://0.0.0.0:8443`,
		"HTTP=127.0.0.1:1,127.0.0.1:2":  `http: "127.0.0.1:1,127.0.0.1:2": "127.0.0.1:1": want host:port`,
		"HTTP=a=tls://127.0.0.1:1":      `http: "a=tls://127.0.0.1:1": want tls.cert_file and tls.key_file too`,
		"PUBLIC=a=tls://127.0.0.1:1":    `public: "a=tls://127.0.0.1:1": want tls.cert_file and tls.key_file too`,
		"PUBLIC=a":                      `public: "a": want host:port, such as 127.0.0.1:8081, or up to 16, each with a name of its own and plain or tls, such as internal=plain://127.0.0.1:8081, public=tls://0.0.0.0:8444, or "off"`,
	} {
		if _, err := config.Load(nil, []string{"SLUICE_" + setting}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", setting, err, want)
		}
	}
}
