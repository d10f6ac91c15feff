package rediskv

import (
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
		says   string // why it is refused; "": it is not
		doubts string // what an operator should look at; "": nothing
	}{
		{name: "Redis 7"},
		{name: "Redis 8", change: map[string]string{"redis_version": "8.2.0"}},
		{name: "Redis 10", change: map[string]string{"redis_version": "10.0"}},
		{name: "Valkey 8", change: map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.0"}},
		{name: "Redis 6", change: map[string]string{"redis_version": "6.2.14"}, says: "Redis 7, or Valkey, is needed"},
		{name: "something else", change: map[string]string{"redis_version": ""}, says: "Redis 7, or Valkey, is needed"},
		{name: "eviction", change: map[string]string{"maxmemory_policy": "volatile-ttl"}, says: "set it to noeviction"},
		{name: "no file", change: map[string]string{"aof_enabled": "0"}, doubts: "set appendonly yes"},
		{name: "a full disk", change: map[string]string{"aof_last_write_status": "err"}, doubts: "could not write its append-only file"},
		{name: "little memory", change: map[string]string{"used_memory": "950", "maxmemory": "1000"}, doubts: "uses 950 of 1000 bytes"},
		{name: "enough memory", change: map[string]string{"used_memory": "850", "maxmemory": "1000", "aof_last_write_status": "ok"}},
		{name: "no bound of memory", change: map[string]string{"used_memory": "950", "maxmemory": "0"}},
		{name: "a replica without a file", change: map[string]string{"aof_enabled": "0", "role": "slave"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			info := fit(test.change)
			for _, of := range []struct {
				want string
				err  error
			}{{test.says, refuse("host:1", info)}, {test.doubts, doubt("host:1", info)}} {
				if of.want == "" && of.err != nil || of.want != "" && (of.err == nil || !strings.Contains(of.err.Error(), of.want)) {
					t.Errorf("error is %v, want %q", of.err, of.want)
				}
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
