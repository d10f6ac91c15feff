package bulk

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSettingsChangeIsValidated(t *testing.T) {
	secret := "whsec_" + strings.Repeat("A", 32)
	for name, c := range map[string]struct {
		change SettingsChange
		field  string // empty if the setting is valid
	}{
		"a limit":                  {SettingsChange{Limits: &Limits{RequestsPerSecond: 0.5, Concurrency: 3, Pacing: PaceSmooth}}, ""},
		"no limit":                 {SettingsChange{Limits: &Limits{}}, ""},
		"a tenant":                 {SettingsChange{Name: "t", Tenant: &Tenant{BasePriority: -5, Weight: 1000, RequestsPerSecond: 1e9, Concurrency: 2, Pacing: PaceWindow}}, ""},
		"a tenant's defaults":      {SettingsChange{Name: "t", Tenant: &Tenant{}}, ""},
		"a target":                 {SettingsChange{Name: "x:80", Target: &TargetLimits{RequestsPerSecond: 10, Concurrency: 3}}, ""},
		"a rate to be found":       {SettingsChange{Name: "x:80", Target: &TargetLimits{Auto: true, Concurrency: 3}}, ""},
		"a type":                   {SettingsChange{Name: "echo", Type: &TypeLimits{Concurrency: 10_000, TotalConcurrency: 7, RequestsPerSecond: 2, Pacing: PaceSmooth}}, ""},
		"a target of some tenants": {SettingsChange{Name: "t", Target: &TargetLimits{URLPrefix: "https://x/y", Secrets: []string{secret}, Tenants: []string{"a"}}}, ""},
		"a prefix that is no URL":  {SettingsChange{Name: "t", Target: &TargetLimits{URLPrefix: "x/y"}}, "url_prefix"},
		"a prefix with a password": {SettingsChange{Name: "t", Target: &TargetLimits{URLPrefix: "https://u:p@x/y"}}, "url_prefix"},
		"secrets without prefix":   {SettingsChange{Name: "t", Target: &TargetLimits{Secrets: []string{secret}}}, "secrets"},
		"a secret that is none":    {SettingsChange{Name: "t", Target: &TargetLimits{URLPrefix: "https://x", Secrets: []string{"hunter2"}}}, "secrets"},
		"eleven secrets":           {SettingsChange{Name: "t", Target: &TargetLimits{URLPrefix: "https://x", Secrets: slices.Repeat([]string{secret}, 11)}}, "secrets"},
		"tenants without prefix":   {SettingsChange{Name: "t", Target: &TargetLimits{Tenants: []string{"a"}}}, "tenants"},
		"a tenant that is none":    {SettingsChange{Name: "t", Target: &TargetLimits{URLPrefix: "https://x", Tenants: []string{""}}}, "tenants"},
		"nothing":                  {SettingsChange{Name: "t"}, "setting"},
		"two at once":              {SettingsChange{Name: "t", Tenant: &Tenant{}, Type: &TypeLimits{}}, "setting"},
		"limits with a name":       {SettingsChange{Name: "t", Limits: &Limits{}}, "name"},
		"a tenant without a name":  {SettingsChange{Tenant: &Tenant{}}, "name"},
		"a long name":              {SettingsChange{Name: strings.Repeat("x", 257), Type: &TypeLimits{}}, "name"},
		"a limit below 0":          {SettingsChange{Limits: &Limits{RequestsPerSecond: -1}}, "requests_per_second"},
		"a limit that is none":     {SettingsChange{Limits: &Limits{RequestsPerSecond: math.NaN()}}, "requests_per_second"},
		"an infinite limit":        {SettingsChange{Limits: &Limits{RequestsPerSecond: math.Inf(1)}}, "requests_per_second"},
		"a tenant's below 0":       {SettingsChange{Name: "t", Tenant: &Tenant{RequestsPerSecond: -1}}, "requests_per_second"},
		"a target's below 0":       {SettingsChange{Name: "t", Target: &TargetLimits{RequestsPerSecond: -1}}, "requests_per_second"},
		"a rate, and to be found":  {SettingsChange{Name: "t", Target: &TargetLimits{Auto: true, RequestsPerSecond: 5}}, "requests_per_second"},
		"a weight below 0":         {SettingsChange{Name: "t", Tenant: &Tenant{Weight: -1}}, "weight"},
		"a weight above 1,000":     {SettingsChange{Name: "t", Tenant: &Tenant{Weight: 1001}}, "weight"},
		"a weight that is none":    {SettingsChange{Name: "t", Tenant: &Tenant{Weight: math.NaN()}}, "weight"},
		"a concurrency below 0":    {SettingsChange{Name: "t", Target: &TargetLimits{Concurrency: -1}}, "concurrency"},
		"a tenant's concurrency":   {SettingsChange{Name: "t", Tenant: &Tenant{Concurrency: -1}}, "concurrency"},
		"all below 0":              {SettingsChange{Limits: &Limits{Concurrency: -1}}, "concurrency"},
		"a type's total below 0":   {SettingsChange{Name: "t", Type: &TypeLimits{TotalConcurrency: -1}}, "total_concurrency"},
		"a limit of all webhooks":  {SettingsChange{Name: WebhookType, Type: &TypeLimits{TotalConcurrency: 5}}, "total_concurrency"},
		"workers of webhooks":      {SettingsChange{Name: WebhookType, Type: &TypeLimits{Concurrency: 5}}, ""},
		"another pacing":           {SettingsChange{Name: "t", Target: &TargetLimits{Pacing: "even"}}, "pacing"},
		"workers below 0":          {SettingsChange{Name: "t", Type: &TypeLimits{Concurrency: -1}}, "concurrency"},
		"workers above the bounds": {SettingsChange{Name: "t", Type: &TypeLimits{Concurrency: 10_001}}, "concurrency"},
	} {
		err := c.change.Validate()
		var wrong *SettingError
		switch {
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error quotes the secret: %v", name, err)
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field != "" && (!errors.As(err, &wrong) || wrong.Field != c.field || wrong.Why == ""):
			t.Errorf("%s: error %v, want one of the field %s", name, err, c.field)
		}
	}
}

func TestTargetLimitsInJSON(t *testing.T) {
	for text, want := range map[string]TargetLimits{
		`{"requests_per_second":0,"concurrency":0}`:                   {},
		`{"requests_per_second":2.5,"concurrency":3}`:                 {RequestsPerSecond: 2.5, Concurrency: 3},
		`{"requests_per_second":"auto","concurrency":7}`:              {Auto: true, Concurrency: 7},
		`{"requests_per_second":"auto","concurrency":0}`:              {Auto: true},
		`{"requests_per_second":10000000,"concurrency":0}`:            {RequestsPerSecond: 1e7},
		`{"requests_per_second":5,"concurrency":0,"pacing":"smooth"}`: {RequestsPerSecond: 5, Pacing: PaceSmooth},
		`{"requests_per_second":"auto","concurrency":0,"url_prefix":"https://x/","secrets":["s"],"tenants":["a","b"]}`: {
			Auto: true, URLPrefix: "https://x/", Secrets: []string{"s"}, Tenants: []string{"a", "b"},
		},
	} {
		got := TargetLimits{RequestsPerSecond: 99, Auto: true, Concurrency: 5}
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads as %+v, %v; want %+v", text, got, err, want)
		}
		raw, err := json.Marshal(map[string]TargetLimits{"x": want})
		if err != nil || string(raw) != `{"x":`+text+`}` {
			t.Errorf("%+v is written as %s, %v; want %s", want, raw, err, text)
		}
	}
	kept := TargetLimits{Auto: true}
	if err := json.Unmarshal([]byte(`{"concurrency":4}`), &kept); err != nil || !reflect.DeepEqual(kept, TargetLimits{Auto: true, Concurrency: 4}) {
		t.Errorf("without requests_per_second it becomes %+v, %v", kept, err)
	}
	for _, text := range []string{`{"requests_per_second":"fast"}`, `{"requests_per_second":[]}`, `{"requests_per_second":"Auto"}`, `{"concurrency":"auto"}`, `7`} {
		if err := json.Unmarshal([]byte(text), new(TargetLimits)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}
