package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/room"
)

const roomsFile = `state: redis://sluice:s3cr3t@redis.example.com:6379/2
room:
  trusted_proxies: [10.0.0.0/8, 192.168.1.1]
  cors_origins:
    - https://shop.example.com
  rooms:
    shop:
      mode: teller
      capacity: 200
      pass_ttl: 5m
      grace: 0s
      opens_at: 2030-01-31T09:00:00+09:00
      routes:
        - path: /checkout/*
        - {host: shop.example.com, method: POST}
    fair: {mode: park, batch: 500, interval: 1m, stay: 15m, bind_tickets: true}
gate:
  http: 127.0.0.1:8000
  room: shop
  upstream: http://127.0.0.1:3000
`

func TestRoomsOfTheFile(t *testing.T) {
	path := write(t, roomsFile)
	c, err := config.Load(flags(t, "--config", path), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]room.Settings{
		"shop": room.Settings{
			Mode: room.Teller, Capacity: 200, PassTTL: 5 * time.Minute, Grace: -1,
			OpensAt: time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC),
			Routes:  []room.Rule{{Path: "/checkout/*"}, {Host: "shop.example.com", Method: "POST"}},
		}.WithDefaults(),
		"fair": room.Settings{Mode: room.Park, Batch: 500, Interval: time.Minute, Stay: 15 * time.Minute, BindTickets: true}.WithDefaults(),
	}
	if !reflect.DeepEqual(c.Room.Rooms, want) {
		t.Errorf("rooms %+v\nwant  %+v", c.Room.Rooms, want)
	}
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.1.1/32")}
	if got := c.Room.TrustedProxies.Prefixes(); !reflect.DeepEqual(got, prefixes) {
		t.Errorf("trusted proxies %v, want %v", got, prefixes)
	}
	gate := config.Default().Gate
	gate.HTTP, gate.Room, gate.Upstream = config.List{"127.0.0.1:8000"}, "shop", "http://127.0.0.1:3000"
	if want := gate; !reflect.DeepEqual(c.Gate, want) {
		t.Errorf("gate %+v, want %+v", c.Gate, want)
	}
	for key, line := range map[string]int{"room.rooms.shop": 7, "room.rooms.shop.capacity": 9, "room.cors_origins": 5} {
		if got, want := c.Source(key), fmt.Sprintf("file %s:%d", path, line); got != want {
			t.Errorf("the source of %s is %q, want %q", key, got, want)
		}
	}
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"state: redis://sluice:(hidden)@redis.example.com:6379/2 # file " + path + ":1\n",
		"      pass_ttl: 5m # file ", "      grace: 0s # file ", "      opens_at: \"2030-01-31T00:00:00Z\" # file ",
		"      routes: [{path: /checkout/*}, {host: shop.example.com, method: POST}] # file ", "      interval: 1m # file ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

// Nothing that is printed shows the password of the state.
func TestThePasswordOfTheStateIsNotShown(t *testing.T) {
	for _, text := range []string{
		"redis://sluice:s3cr3t@host:1/0", "rediss://:s3cr3t@host", "unix://u:s3cr3t@/run/redis.sock", "redis://a:s3cr3t@h?addr=b:1&addr=c:2",
	} {
		c, err := config.Load(nil, []string{"SLUICE_STATE=" + text})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if c.State.URL() != text {
			t.Errorf("the URL of %s is %s", text, c.State.URL())
		}
		asJSON, err := json.Marshal(map[string]any{"state": c.State})
		if err != nil {
			t.Fatal(err)
		}
		shown := fmt.Sprintf("%v %+v %#v %s", c.State, c, c.State, asJSON)
		if strings.Contains(shown, "s3cr3t") || !strings.Contains(shown, "(hidden)") {
			t.Errorf("shown as %s", shown)
		}
	}
}

func TestTheSecretOfTheChallengeIsNotShown(t *testing.T) {
	c, err := config.Load(nil, []string{"SLUICE_GATE_CHALLENGE_PROVIDER=turnstile", "SLUICE_GATE_CHALLENGE_SITE_KEY=k", "SLUICE_GATE_CHALLENGE_SECRET=s3cr3t"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(c.Gate)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s %s", c, c.Gate, c.Gate, asJSON, &out)
	if string(c.Gate.Challenge.Secret) != "s3cr3t" || strings.Contains(shown, "s3cr3t") || !strings.Contains(out.String(), "challenge_secret: (hidden)") {
		t.Errorf("shown as %s", shown)
	}
}

// No error shows the password either, however wrong the URL is.
func TestErrorsDoNotShowThePassword(t *testing.T) {
	for _, text := range []string{
		"redis://u:s3cr3t@ho st", "http://u:s3cr3t@host", "u:s3cr3t@host", "redis://u:s3cr3t@", "rediss://u:s3cr3t%zz@host", "unix://u:s3cr3t@host/x", "s3cr3t",
	} {
		for way, load := range map[string]func() (*config.Config, error){
			"environment": func() (*config.Config, error) { return config.Load(nil, []string{"SLUICE_STATE=" + text}) },
			"file": func() (*config.Config, error) {
				return config.Load(flags(t, "--config", write(t, "state: '"+text+"'\n")), nil)
			},
			"flag": func() (*config.Config, error) { return config.Load(flags(t, "--state", text), nil) },
		} {
			_, err := load()
			var wrong *config.Error
			if !errors.As(err, &wrong) || wrong.Key != "state" || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%q by %s: %v, want an error of state without the password", text, way, err)
			}
		}
	}
}

func TestErrorsOfRooms(t *testing.T) {
	for _, test := range []struct{ name, file, want string }{
		{"unknown setting", "room: {rooms: {shop: {mod: teller}}}\n", "file FILE:1: room.rooms.shop.mod: there is no such setting; the nearest is room.rooms.shop.mode"},
		{"the API's name", "room:\n  rooms:\n    shop: {pass_ttl_ms: 3}\n", "file FILE:3: room.rooms.shop.pass_ttl_ms: there is no such setting; the nearest is room.rooms.shop.pass_ttl"},
		{"no mode", "room:\n  rooms:\n    shop:\n", "file FILE:3: room.rooms.shop: mode: "},
		{"no capacity", "room:\n  rooms:\n    shop:\n      mode: teller\n", "file FILE:3: room.rooms.shop: capacity: "},
		{"out of range", "room:\n  rooms:\n    shop:\n      mode: teller\n      capacity: 0\n", "file FILE:5: room.rooms.shop.capacity: "},
		{"of the other mode", "room:\n  rooms:\n    shop:\n      mode: teller\n      capacity: 1\n      stay: 1m\n", "file FILE:6: room.rooms.shop.stay: "},
		{"no unit", "room:\n  rooms:\n    shop:\n      pass_ttl: 10\n", `file FILE:4: room.rooms.shop.pass_ttl: "10": want a duration of whole milliseconds`},
		{"too fine", "room:\n  rooms:\n    shop:\n      pass_ttl: 1500us\n", `file FILE:4: room.rooms.shop.pass_ttl: "1500us": want a duration of whole milliseconds`},
		{"no time", "room:\n  rooms:\n    shop:\n      opens_at: tomorrow\n", `file FILE:4: room.rooms.shop.opens_at: "tomorrow": want a time such as`},
		{"no rule", "room:\n  rooms:\n    shop:\n      routes: /a\n", "file FILE:4: room.rooms.shop.routes: want a list of rules"},
		{"unknown part of a rule", "room:\n  rooms:\n    shop:\n      routes:\n        - {pth: /a}\n", "file FILE:5: room.rooms.shop.routes.pth: there is no such setting; the nearest is room.rooms.shop.routes.path"},
		{"a rule without a slash", "room:\n  rooms:\n    shop:\n      mode: teller\n      routes:\n        - {path: a}\n", "file FILE:6: room.rooms.shop.routes: "},
		{"a bad name", "room:\n  rooms:\n    Shop: {mode: teller, capacity: 1}\n", "file FILE:3: room.rooms.Shop: "},
		{"a proxy", "room: {trusted_proxies: [10.0.0.1, ten]}\n", `file FILE:1: room.trusted_proxies: "10.0.0.1,ten": "ten": want addresses or networks`},
		{"an origin", "room: {cors_origins: https://a/b}\n", `file FILE:1: room.cors_origins: "https://a/b": "https://a/b": want origins`},
		{"engine", "room: {refresh_interval: 1ms}\n", `file FILE:1: room.refresh_interval: "1ms": want from 100ms to 10s`},
		{"a gate without a room", "gate: {http: ':1', upstream: 'http://a'}\n", "file FILE:1: gate.http: a gate needs gate.room too, or gate.sites"},
		{"sites and a room", "gate: {http: ':1', room: a, sites: [{room: b}]}\n", "file FILE:1: gate.room: with gate.sites it belongs into one of them"},
		{"no list of sites", "gate: {sites: {room: a}}\n", "file FILE:1: gate.sites: want a list of mappings"},
		{"a key of a site", "gate:\n  sites:\n    - room: a\n    - rom: b\n", "file FILE:4: gate.sites[1].rom: there is no such setting; the nearest is gate.sites[1].room"},
		{"a value of a site", "gate:\n  sites:\n    - room: a\n      crawlers: no\n", `file FILE:4: gate.sites[0].crawlers: "no": want queue, pass or refuse`},
		{"a rule of a site", "gate:\n  sites:\n    - rules:\n        - paths: /a\n", "file FILE:4: gate.sites[0].rules[0].paths: there is no such setting; the nearest is gate.sites[0].rules[0].path"},
		{"a gate without an upstream", "gate: {http: ':1', room: a}\n", "file FILE:1: gate.http: a gate needs gate.upstream too"},
		{"an upstream", "gate: {upstream: 'ftp://a'}\n", `file FILE:1: gate.upstream: "ftp://a": want a URL`},
		{"half of TLS", "gate: {tls_cert: FILE}\n", "file FILE:1: gate.tls_cert: want gate.tls_key too"},
		{"half of TLS for operators", "tls: {cert_file: FILE}\n", "file FILE:1: tls.cert_file: want tls.key_file too"},
		{"the other half", "tls: {key_file: FILE}\n", "file FILE:1: tls.key_file: want tls.cert_file too"},
		{"authorities without TLS", "tls: {client_ca_file: FILE}\n", "file FILE:1: tls.client_ca_file: want tls.cert_file and tls.key_file too"},
		{"revocations without authorities", "tls: {client_crl_file: FILE}\n", "file FILE:1: tls.client_crl_file: want tls.client_ca_file too"},
		{"optional certificates without authorities", "tls: {client_auth: requested}\n", "file FILE:1: tls.client_auth: want tls.client_ca_file too"},
		{
			"optional certificates without accounts", "tls: {client_auth: requested, cert_file: FILE, key_file: FILE, client_ca_file: FILE}\n",
			"file FILE:1: tls.client_auth: without accounts anybody could do everything",
		},
		{"a rule for names", "access: {cert_name_rules: CN}\n", `file FILE:1: access.cert_name_rules: "CN": "CN": want RULE:PATTERN/REPLACEMENT/`},
		{"names without certificates", "access: {cert_name_rules: DEFAULT}\n", "file FILE:1: access.cert_name_rules: want tls.client_ca_file, and access.admin_token"},
		{"grants for nobody", "access: {grants: ['name:cert:a viewer']}\n", "file FILE:1: access.grants: they need accounts: want access.admin_token or access.admin_token_file too"},
		{"a language", "gate: {languages: [en, e]}\n", `file FILE:1: gate.languages: "en,e": "e": want languages, such as en,ko,ja,zh-Hans, each once`},
		{"a theme", "gate: {theme: [accent=teal]}\n", `file FILE:1: gate.theme: "accent=teal": "accent=teal": want colors such as accent=#2f5d62`},
		{"a file of texts", "gate: {texts: [/no/such]}\n", `file FILE:1: gate.texts: "/no/such": "/no/such": want the path of a file: stat /no/such: no such file or directory`},
		{"a provider", "gate: {challenge_provider: me}\n", `file FILE:1: gate.challenge_provider: "me": want turnstile, hcaptcha, recaptcha or proof_of_work`},
		{"a provider alone", "gate: {challenge_provider: hcaptcha, challenge_site_key: k}\n", "file FILE:1: gate.challenge_provider: want gate.challenge_secret too"},
		{"a fallback alone", "gate: {challenge_provider: proof_of_work, challenge_fallback: open}\n", "file FILE:1: gate.challenge_fallback: want gate.challenge_provider too"},
		{"easy puzzles", "gate: {challenge_min_bits: 7}\n", `file FILE:1: gate.challenge_min_bits: "7": want from 8 to 28`},
		{"puzzles that become easier", "gate: {challenge_max_bits: 13}\n", "file FILE:1: gate.challenge_max_bits: want at least gate.challenge_min_bits"},
		{"a printed secret", "gate: {challenge_secret: (hidden)}\n", "file FILE:1: gate.challenge_secret: (hidden) is what"},
		{"no template", "gate: {template: /nowhere/page.html}\n", `file FILE:1: gate.template: "/nowhere/page.html": want the path of a file`},
	} {
		path := write(t, "")
		path = write(t, strings.ReplaceAll(test.file, "FILE", path))
		_, err := config.Load(nil, []string{"SLUICE_CONFIG=" + path})
		if err == nil || !strings.HasPrefix(err.Error(), strings.ReplaceAll(test.want, "FILE", path)) {
			t.Errorf("%s: %v\nwant %s", test.name, err, test.want)
		}
	}
}

func TestGateFlags(t *testing.T) {
	set := pflag.NewFlagSet("gate", pflag.ContinueOnError)
	config.GateFlags(set)
	if err := set.Parse([]string{"--room", "shop", "--upstream", "http://a:1", "--http", ":9", "--state", "redis://b", "--room-trusted-proxies", "::1"}); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadGate(set, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Gate.HTTP.String() != config.DefaultGate || c.Gate.Room != "shop" || c.Gate.Upstream != "http://a:1" || c.HTTP.String() != ":9" || c.State != "redis://b" || c.Room.TrustedProxies.String() != "::1" {
		t.Errorf("got %+v", c)
	}
	if source := c.Source("gate.room"); source != "flag --room" {
		t.Errorf("the source of gate.room is %q", source)
	}
	for _, none := range []string{"kafka", "bulk-workers", "topic-sync", "gate-room", "room-outbox"} {
		if set.Lookup(none) != nil {
			t.Errorf("a gate has the flag --%s", none)
		}
	}
}

func TestRoomFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want map[string]any
	}{
		{nil, map[string]any{}},
		{[]string{"--capacity=2"}, map[string]any{"mode": room.Teller, "capacity": int64(2)}},
		{[]string{"--batch=2", "--interval=1s", "--stay=1m"}, map[string]any{"mode": room.Park, "batch": int64(2), "interval_ms": int64(1000), "stay_ms": int64(60000)}},
		{[]string{"--mode=park", "--capacity=2"}, map[string]any{"mode": "park", "capacity": int64(2)}},
		{[]string{"--bind-tickets", "--grace=0"}, map[string]any{"bind_tickets": true, "grace_ms": int64(0)}},
		{[]string{"--route=/a/*", "--route=POST b.c/d", "--bypass=e.f"}, map[string]any{
			"routes": []map[string]string{{"path": "/a/*"}, {"method": "POST", "host": "b.c", "path": "/d"}},
			"bypass": []map[string]string{{"host": "e.f"}},
		}},
	} {
		set := pflag.NewFlagSet("room", pflag.ContinueOnError)
		settings := config.AddRoomFlags(set)
		if err := set.Parse(test.args); err != nil {
			t.Fatalf("%v: %v", test.args, err)
		}
		if got := settings.Object(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v: %#v, want %#v", test.args, got, test.want)
		}
	}
	for _, wrong := range []string{"--capacity=x", "--stay=5", "--opens-at=now", "--route=", "--route=a b c", "--route=checkout/*", "--bypass=GET about", "--bind-tickets=maybe"} {
		set := pflag.NewFlagSet("room", pflag.ContinueOnError)
		config.AddRoomFlags(set)
		if err := set.Parse([]string{wrong}); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%s: %v, want what would be right", wrong, err)
		}
	}
	some := pflag.NewFlagSet("gate", pflag.ContinueOnError)
	config.AddRoomFlags(some, "capacity")
	if some.Lookup("capacity") == nil || some.Lookup("batch") != nil {
		t.Error("not only the flag that was asked for")
	}
}

// Every setting of the API has a setting in the file.
func TestTheFileHasEverySettingOfTheAPI(t *testing.T) {
	names := map[string]bool{}
	for _, s := range config.RoomSettings() {
		names[strings.ReplaceAll(s.Key, "_", "")] = true
	}
	for field := range fieldNames(room.Settings{}) {
		if !names[field] {
			t.Errorf("room.Settings has a field %s and the file no setting: add it to oneRoomSettings", field)
		}
		delete(names, field)
	}
	for name := range names {
		t.Errorf("the file has a setting %s and room.Settings no field", name)
	}
}
