package rediskv

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

func TestWhichServersAreRefused(t *testing.T) {
	fit := func(change map[string]string) map[string]string {
		info := map[string]string{"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "role": "master", "aof_enabled": "1"}
		for name, value := range change {
			info[name] = value
		}
		return info
	}
	tests := []struct {
		name   string
		change map[string]string
		says   string // of the error; "": none
		warns  bool
	}{
		{name: "Redis 7"},
		{name: "Redis 8", change: map[string]string{"redis_version": "8.2.0"}},
		{name: "Redis 10", change: map[string]string{"redis_version": "10.0"}},
		{name: "Valkey 8", change: map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.0"}},
		{name: "Redis 6", change: map[string]string{"redis_version": "6.2.14"}, says: "Redis 7, or Valkey, is needed"},
		{name: "something else", change: map[string]string{"redis_version": ""}, says: "Redis 7, or Valkey, is needed"},
		{name: "eviction", change: map[string]string{"maxmemory_policy": "volatile-ttl"}, says: "set it to noeviction"},
		{name: "no file", change: map[string]string{"aof_enabled": "0"}, warns: true},
		{name: "a replica without a file", change: map[string]string{"aof_enabled": "0", "role": "slave"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var log strings.Builder
			s := &DB{logger: slog.New(slog.NewTextHandler(&log, nil))}
			err := s.checkNode("host:1", fit(test.change))
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error is %v, want %q", err, test.says)
			}
			if warned := log.Len() > 0; warned != test.warns {
				t.Errorf("the log is %q; want a warning: %v", log.String(), test.warns)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	options, err := ParseURL("rediss://me:a%2Fb%40c@one:6380/2?addr=two:6381&master_set=shops")
	if err != nil {
		t.Fatal(err)
	}
	if options.Password != "a/b@c" || options.Sentinel.Password != "a/b@c" || options.Sentinel.Username != "me" || options.SelectDB != 2 {
		t.Errorf("user %q, sentinels' %q, database %d", options.Username, options.Sentinel.Username, options.SelectDB)
	}
	if options.TLSConfig == nil || options.Sentinel.TLSConfig == nil || strings.Join(options.InitAddress, " ") != "one:6380 two:6381" {
		t.Errorf("TLS %v, addresses %q", options.TLSConfig, options.InitAddress)
	}
	if options.Dialer.Timeout != DefaultCallTimeout || !options.DisableCache || options.ClientName != "sluice" {
		t.Errorf("options are %+v", options)
	}
}

// An error about a URL does not contain its password, whatever characters that has.
func FuzzURLErrorsKeepThePassword(f *testing.F) {
	for _, secret := range []string{"swordfish", "sword/fish", "12/fish", "12?fish", "12#fish", "a@b", "%zz", "[::1", "12?addr=fish"} {
		f.Add(secret, "host:6379/x")
	}
	f.Fuzz(func(t *testing.T, secret, rest string) {
		_, err := ParseURL("redis://:" + secret + "@" + rest)
		// Short pieces may be words of the message, and what the rest holds too may be said.
		if err == nil || len(secret) < 9 || strings.Contains(rest, secret) || strings.Contains(url.QueryEscape(rest), secret) {
			return
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q of the password is in %q", secret, err)
		}
	})
}
