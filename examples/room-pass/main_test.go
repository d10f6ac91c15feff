package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// keys serves the keys of a ring, which can be replaced.
type keys struct {
	ring *engine.Keyring
	t    *testing.T
	asks int
}

func (k *keys) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	k.asks++
	if _, err := w.Write(k.ring.JWKS()); err != nil {
		k.t.Error(err)
	}
}

func newRing(t *testing.T) *engine.Keyring {
	key, err := engine.NewSigningKey(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ring, err := engine.NewKeyring([]room.SigningKey{key})
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestCheck(t *testing.T) {
	served := &keys{ring: newRing(t), t: t}
	server := httptest.NewServer(served)
	defer server.Close()
	v := &verifier{url: server.URL, room: "shop"}
	now := time.Now()
	sign := func(ring *engine.Keyring, name string, ends time.Time) string {
		text, err := ring.SignPass(&engine.Room{Name: name, Generation: "g"}, engine.Pass{Number: 42, IssuedAt: now, ExpiresAt: ends})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := sign(served.ring, "shop", now.Add(time.Minute))
	greet := func(pass string) string {
		request := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(context.Background())
		request.Header.Set("Sluice-Pass", pass)
		answer := httptest.NewRecorder()
		v.ServeHTTP(answer, request)
		return fmt.Sprint(answer.Code, " ", answer.Body)
	}
	none := strings.Split(good, ".")
	none[0] = "eyJhbGciOiJub25lIn0" // {"alg":"none"}
	for want, pass := range map[string]string{
		"200 welcome, visitor 42 of shop": good,
		"403 no pass: the pass is of":     sign(served.ring, "fair", now.Add(time.Minute)),
		"403 no pass: token has invalid":  sign(served.ring, "shop", now.Add(-time.Second)),
		"403 no pass: token is unverif":   sign(newRing(t), "shop", now.Add(time.Minute)),
		"403 no pass: token signature is": none[0] + "." + none[1] + ".",
		"403 no pass: token is malformed": "",
	} {
		if got := greet(pass); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if served.asks > 1 {
		t.Errorf("the keys were asked for %d times within %s", served.asks, keysEvery)
	}
	// A new key is found after a while.
	served.ring, v.asked = newRing(t), v.asked.Add(-keysEvery)
	if got := greet(sign(served.ring, "shop", now.Add(time.Minute))); !strings.HasPrefix(got, "200") {
		t.Errorf("with a new key: %s", got)
	}
}
