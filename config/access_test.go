package config_test

import (
	"strings"
	"testing"

	"github.com/sluice-project/sluice/config"
)

// An identity provider needs all of its settings, and keys that nobody on the way can replace.
func TestIdentityProvider(t *testing.T) {
	const (
		issuer, audience = "--access-jwt-issuer=https://login.test", "--access-jwt-audience=sluice"
		keys             = "--access-jwt-keys=https://login.test/keys"
	)
	for _, test := range []struct {
		accounts   bool
		args, want string
	}{
		{false, issuer + " " + audience + " " + keys, "it needs accounts"},
		{true, audience, "want the issuer of JWTs"},
		{true, issuer + " " + keys, "want the audience of JWTs"},
		{true, issuer + " " + audience, "want the URL or the file"},
	} {
		var environ []string
		if test.accounts {
			environ = append(environ, "SLUICE_ACCESS_ADMIN_TOKEN="+secretA)
		}
		if _, err := config.Load(flags(t, strings.Fields(test.args)...), environ); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
	environ := []string{"SLUICE_ACCESS_ADMIN_TOKEN=" + secretA, "SLUICE_ACCESS_JWT_ISSUER=i", "SLUICE_ACCESS_JWT_AUDIENCE=a"}
	for keys, valid := range map[string]bool{
		"https://login.test/keys": true, "http://127.0.0.1:1/keys": true, "http://localhost/keys": true,
		"http://login.test/keys": false, "https:///keys": false, "https://user:password@login.test/keys": false,
	} {
		if _, err := config.Load(nil, append(environ, "SLUICE_ACCESS_JWT_KEYS="+keys)); (err == nil) != valid {
			t.Errorf("keys at %s: %v", keys, err)
		}
	}
}
