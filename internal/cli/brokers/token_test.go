package brokers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/internal/cli/exit"
)

// A token is sent over TLS, or to this machine.
func TestTokensDoNotCrossTheNetworkInTheClear(t *testing.T) {
	for _, test := range []struct {
		address string
		secure  bool
		sent    bool
	}{
		{"127.0.0.1:9092", false, true}, {"localhost:9092", false, true}, {"[::1]:9092", false, true},
		{"192.0.2.1:9092", false, false}, {"kafka.example.com:9092", false, false}, {"localhost.example.com:9092", false, false},
		{"192.0.2.1:9092", true, true}, {"kafka.example.com:9092", true, true},
	} {
		login := tokenLogin{plain.Auth{User: "token", Pass: "secret"}.AsMechanism(), test.secure}
		_, message, err := login.Authenticate(t.Context(), test.address)
		if (err == nil) != test.sent || strings.Contains(string(message), "secret") != test.sent || err != nil && !exit.IsUsage(err) {
			t.Errorf("%s, TLS %v: %q, %v; want that it is sent: %v", test.address, test.secure, message, err, test.sent)
		}
	}
}

// Errors about a token name the way to give one.
func TestRefusedTokens(t *testing.T) {
	if err := refused(fmt.Errorf("ping: %w", kerr.SaslAuthenticationFailed)); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Error(err)
	}
	if err := refused(errors.New("another")); err != nil {
		t.Error(err)
	}
}
