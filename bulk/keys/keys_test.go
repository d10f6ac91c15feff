package keys_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/keys"
)

func TestKeysOfJobs(t *testing.T) {
	t.Parallel()
	spec := &bulk.Spec{Tenant: "acme", Type: "export", Key: "k"}
	payload := `{"customer":"c1","n":17,"part":1.5,"paid":true,"list":[1],"empty":"","null":null,"odd name":"x","long":"` + strings.Repeat("y", 200) +
		`","many":[1` + strings.Repeat(",1", 50_000) + `]}`
	for expression, want := range map[string]string{
		"payload.customer": "c1", "payload.n": "17", "payload.part": "1.5", "payload.paid": "true", `payload["odd name"]`: "x",
		"type + tenant + key + target": "exportacmek", "int(payload.n) % 5": "2", "size(payload.list)": "1",
		`has(payload.missing) ? payload.missing : "none"`: "none", `payload.list.all(x, x > 0.0) ? "all" : "some"`: "all",
		"payload.long": "sha256:8ca9bfd43d61bf0ab214f1b75fb137479da5ed86dd0ab570d4fa70eb1594c268",
		// These are no keys; the last one costs too much.
		"payload.missing": "", "payload.empty": "", `payload["null"]`: "", "payload.list": "", "payload": "", "1 / 0": "", "payload.customer.first": "",
		`payload.many.all(x, x > 0.0) ? "all" : "some"`: "",
	} {
		k, err := keys.Compile(map[string]bulk.KeyLimit{expression: {Concurrency: 1}})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got := ""
		for _, key := range k.Of(spec, []byte(payload)) {
			got += key.Key
		}
		if got != want {
			t.Errorf("%s: the key is %q, want %q", expression, got, want)
		}
	}
}

func TestCostsOfJobs(t *testing.T) {
	t.Parallel()
	spec := &bulk.Spec{Tenant: "acme", Type: "export", Cost: 7}
	payload := []byte(`{"n":17,"part":1.2,"text":"12","negative":-3,"huge":1e300}`)
	for expression, want := range map[string]int64{
		"": 1, "3": 3, "payload.n": 17, "payload.part": 2, "int(payload.text) * 2": 24, "cost": 7, "size(payload.text)": 2, "uint(5)": 5,
		// Where there is no cost, it is 1; and it has bounds.
		"payload.text": 1, "payload.missing": 1, "payload.negative": 1, "0": 1, "payload.huge": bulk.MaxCost, "0.0 / 0.0": 1,
	} {
		k, err := keys.Compile(map[string]bulk.KeyLimit{"tenant": {RequestsPerSecond: 1, Cost: expression}})
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		use := k.Of(spec, payload)[0]
		if got := use.Charge(); got != want || (use.Cost == 0) != (expression == "") {
			t.Errorf("%q: an attempt is charged %d by %+v, want %d", expression, got, use, want)
		}
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	t.Parallel()
	many := map[string]bulk.KeyLimit{}
	for len(many) <= bulk.MaxKeyLimits {
		many[strings.Repeat("!", 2*len(many))+"true"] = bulk.KeyLimit{}
	}
	for want, limits := range map[string]map[string]bulk.KeyLimit{
		"want at most 8":                       many,
		"want one line of 1 to 512 bytes":      {"": {}},
		"such as payload.customer":             {"payload.a ==\n1": {}},
		"undeclared reference to 'customer'":   {"customer": {}},
		"in CEL of payload (the JSON value)":   {"payload.": {}},
		"of type list(int): want a string":     {"[1]": {}},
		"requests_per_second: want at least":   {"type": {RequestsPerSecond: 1e-9}},
		"concurrency: want at least 1":         {"type": {Concurrency: -1}},
		"of type string: want a number":        {"type": {RequestsPerSecond: 1, Cost: "tenant"}},
		"set that too":                         {"type": {Cost: "cost"}},
		"pacing: want window or smooth":        {"type": {Pacing: "even"}},
		`expression "payload.xxxxxxxxxxxxxxxx`: {"payload." + strings.Repeat("x", 512): {}},
	} {
		_, err := keys.Compile(limits)
		if !errors.As(err, new(*bulk.SettingError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40v: %v, want a *SettingError with %q", limits, err, want)
		}
	}
}
