package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// With keys for tokens nobody takes a visitor's place by naming its key, at the API as at the gate;
// with a token, a customer has one place at both.
func TestRoomTokens(t *testing.T) {
	t.Parallel()
	const secret, another = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	file, replace := settingsFile(t)
	replace("room:\n  token_keys: [HS256:" + secret + "]\n")
	s, front := newGate(t, shop(t).URL, "--capacity", "1", "--config", file)
	s.start()
	token := tokenOf(t, "alice", secret)
	if !newPerson(t, front).inShop("/") {
		t.Fatal("who came first is not in the shop")
	}
	const visitors = "/v1/rooms/shop/visitors"
	enter := func(status int, body string, headers ...string) (v visitor) {
		t.Helper()
		a, err := s.do("POST", visitors, "application/json", []byte(body), headers...)
		if err != nil || a.status != status {
			t.Fatalf("%v: %d %s, %v; want %d", headers, a.status, a.body, err, status)
		}
		if status < http.StatusBadRequest {
			if err := a.json(&v); err != nil {
				t.Fatal(err)
			}
		}
		return v
	}
	alice := enter(http.StatusCreated, "{}", "Sluice-Token", token)
	enter(http.StatusForbidden, `{"visitor":"alice"}`)
	enter(http.StatusForbidden, "{}", "Sluice-Token", token+"x")
	if thief := enter(http.StatusCreated, "{}"); thief.Ticket == alice.Ticket || thief.position() != 2 {
		t.Errorf("who has no token is at %d, want 2", thief.position())
	}
	if again := enter(http.StatusOK, "{}", "Cookie", "sluice_token="+token); again.ID != alice.ID || again.Ticket != alice.Ticket {
		t.Errorf("alice has the places %d and %d", alice.ID, again.ID)
	}
	var place visitor
	if a := newPerson(t, front).get("/?sluice_token="+token, "application/json"); a.status != http.StatusAccepted {
		t.Errorf("at the gate: %d %s", a.status, a.body)
	} else if err := a.json(&place); err != nil || place.ID != alice.ID {
		t.Errorf("at the gate alice is %s (%v), want %d", a.body, err, alice.ID)
	}
	replace("room:\n  token_keys: [HS256:" + another + "]\n")
	until.True(t, "a token of the shop's new key is believed", func() bool {
		a, err := s.do("POST", visitors, "application/json", []byte("{}"), "Sluice-Token", tokenOf(t, "alice", another))
		return err == nil && a.status == http.StatusOK
	})
	enter(http.StatusForbidden, "{}", "Sluice-Token", token)
}

// tokenOf returns a token by which a shop says who a visitor is.
func tokenOf(t *testing.T, customer, secret string) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": customer, "room": "shop", "exp": time.Now().Add(time.Hour).Unix()}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}
