package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func main() {
	keys := flag.String("keys", "http://127.0.0.1:8080/.well-known/jwks.json", "where the room publishes its keys")
	room := flag.String("room", "shop", "the room whose passes count")
	address := flag.String("listen", "127.0.0.1:3001", "address")
	flag.Parse()
	server := &http.Server{
		Addr: *address, ReadHeaderTimeout: 10 * time.Second,
		Handler: &verifier{url: *keys, room: *room},
	}
	log.Fatal(server.ListenAndServe())
}

const (
	keysTime  = 5 * time.Second // for one request
	keysEvery = 10 * time.Second
	maxKeys   = 64 << 10 // bytes
)

// verifier checks passes of one room.
type verifier struct {
	url, room string

	mu    sync.Mutex
	keys  map[string]ed25519.PublicKey
	asked time.Time
}

// pass has the claims that the verifier reads.
type pass struct {
	Room string `json:"room"`
	jwt.RegisteredClaims
}

// Check returns the visitor of a pass. Only EdDSA is accepted: the token does not choose the
// algorithm.
func (v *verifier) Check(ctx context.Context, text string) (visitor string, err error) {
	var claims pass
	_, err = jwt.ParseWithClaims(text, &claims, func(token *jwt.Token) (any, error) {
		kid, _ := token.Header["kid"].(string)
		return v.key(ctx, kid)
	}, jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithIssuer("sluice"), jwt.WithExpirationRequired())
	if err != nil {
		return "", err
	}
	if claims.Room != v.room {
		return "", errors.New("the pass is of another room")
	}
	return claims.Subject, nil
}

// key returns a key. An unknown key may be new, so the keys are read again, but at a bounded rate:
// anyone can invent a key id.
func (v *verifier) key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if key, ok := v.keys[kid]; ok {
		return key, nil
	}
	if time.Since(v.asked) >= keysEvery {
		v.asked = time.Now()
		keys, err := fetchKeys(ctx, v.url)
		if err != nil {
			return nil, err
		}
		v.keys = keys
	}
	if key, ok := v.keys[kid]; ok {
		return key, nil
	}
	return nil, fmt.Errorf("there is no key %q", kid)
}

// fetchKeys reads a JWKS (RFC 7517, with Ed25519 keys by RFC 8037).
func fetchKeys(ctx context.Context, url string) (map[string]ed25519.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	var set struct {
		Keys []struct{ Kid, Kty, Crv, X string }
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxKeys)).Decode(&set); err != nil {
		return nil, err
	}
	keys := map[string]ed25519.PublicKey{}
	for _, key := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(key.X)
		if err == nil && key.Kty == "OKP" && key.Crv == "Ed25519" && len(x) == ed25519.PublicKeySize {
			keys[key.Kid] = x
		}
	}
	return keys, nil
}

// ServeHTTP greets a visitor with a pass.
func (v *verifier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	visitor, err := v.Check(r.Context(), r.Header.Get("Sluice-Pass"))
	if err != nil {
		http.Error(w, "no pass: "+err.Error(), http.StatusForbidden)
		return
	}
	_, _ = fmt.Fprintf(w, "welcome, visitor %s of %s\n", visitor, v.room)
}
