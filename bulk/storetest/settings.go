package storetest

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/sluice-project/sluice/bulk"
)

var settingsCases = []testCase{
	{"the secret stays", false, secretStays},
	{"settings come back", false, settingsKept},
	{"settings survive a restart", true, settingsSurvive},
	{"a tenant's settings are in its line", false, settingsInLine},
}

func (k *kit) expectSettings(want bulk.Settings) {
	k.t.Helper()
	got, err := k.store.Settings(ctx)
	k.must(err)
	k.check(reflect.DeepEqual(got.Limits, want.Limits), "limits: %+v, want %+v", got.Limits, want.Limits)
	k.check(len(got.Tenants) == len(want.Tenants) && len(got.Targets) == len(want.Targets) && len(got.Types) == len(want.Types),
		"settings: %+v, want %+v", got, want)
	for name, tenant := range want.Tenants {
		k.check(reflect.DeepEqual(got.Tenants[name], tenant), "tenant %s: %+v, want %+v", name, got.Tenants[name], tenant)
	}
	for name, target := range want.Targets {
		k.check(reflect.DeepEqual(got.Targets[name], target), "target %s: %+v, want %+v", name, got.Targets[name], target)
	}
	for name, jobType := range want.Types {
		k.check(got.Types[name] == jobType, "type %s: %+v, want %+v", name, got.Types[name], jobType)
	}
}

// setAll stores one setting of each kind, and returns the settings that the store must
// return.
func (k *kit) setAll() bulk.Settings {
	k.t.Helper()
	want := bulk.Settings{
		Limits: &bulk.Limits{RequestsPerSecond: 12.5},
		Tenants: map[string]bulk.Tenant{
			"a":      {BasePriority: -60_000, Weight: 2.5, RequestsPerSecond: 0.5},
			"ü b/:c": {BasePriority: 1, Weight: 1, Keys: map[string]bulk.KeyLimit{`payload["ü<&>"]`: {Concurrency: 2}, "type": {RequestsPerSecond: 0.5, Pacing: bulk.PaceSmooth}}},
		},
		Targets: map[string]bulk.TargetLimits{
			"api:443": {RequestsPerSecond: 7, Concurrency: 3}, "found": {Auto: true, Concurrency: 2},
			"billing": {URLPrefix: "https://x/<&>", Secrets: []string{"whsec_" + strings.Repeat("A", 32)}, Tenants: []string{"a", "ü b/:c"}},
		},
		Types: map[string]bulk.TypeLimits{"echo": {Concurrency: 20}},
	}
	k.set(bulk.SettingsChange{Limits: want.Limits})
	for name, tenant := range want.Tenants {
		k.set(bulk.SettingsChange{Name: name, Tenant: &tenant})
	}
	for name, target := range want.Targets {
		k.set(bulk.SettingsChange{Name: name, Target: &target})
	}
	for name, jobType := range want.Types {
		k.set(bulk.SettingsChange{Name: name, Type: &jobType})
	}
	return want
}

func settingsKept(k *kit) {
	k.open(unlimited())
	k.expectSettings(bulk.Settings{})
	want := k.setAll()
	k.expectSettings(want)
	got, err := k.store.Settings(ctx)
	k.must(err)
	if got.Tenants != nil {
		got.Tenants["a"] = bulk.Tenant{Weight: 99}
		k.expectSettings(want)
	}
	want.Limits = &bulk.Limits{}
	k.set(bulk.SettingsChange{Limits: want.Limits})
	want.Tenants["a"] = bulk.Tenant{Weight: 4}
	k.set(bulk.SettingsChange{Name: "a", Tenant: &bulk.Tenant{Weight: 4}})
	k.expectSettings(want)
}

func settingsSurvive(k *kit) {
	for _, restart := range k.restarts() {
		k.open(unlimited())
		want := k.setAll()
		restart()
		k.expectSettings(want)
		restart()
		k.expectSettings(want)
	}
}

func settingsInLine(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "first"), 1)
	k.run(spec("b", "second"), 1)
	want := bulk.Tenant{BasePriority: 5, Weight: 3, RequestsPerSecond: 4}
	k.set(bulk.SettingsChange{Name: "second", Tenant: &want})
	for id, want := range map[string]bulk.Tenant{"a": {Weight: 1}, "b": want} {
		line, _ := k.waiting(id, k.backlog())
		k.check(reflect.DeepEqual(line.Settings, want), "the line of %s has the settings %+v, want %+v", line.Tenant, line.Settings, want)
	}
}

// secretStays: a store has one secret for good, and no two have the same.
func secretStays(k *kit) {
	k.open(unlimited())
	secret := k.secret()
	k.check(len(secret) == 32 && len(bytes.Trim(secret, "\x00")) > 0, "the secret is %x", secret)
	k.check(bytes.Equal(k.secret(), secret), "the secret changed")
	if k.factory.Reopen != nil {
		for _, restart := range k.restarts() {
			restart()
			k.check(bytes.Equal(k.secret(), secret), "the secret changed at a restart")
		}
	}
	k.open(unlimited())
	k.check(!bytes.Equal(k.secret(), secret), "two stores have the same secret")
}

func (k *kit) secret() []byte {
	k.t.Helper()
	secret, err := k.store.Secret(ctx)
	k.must(err)
	return secret
}
