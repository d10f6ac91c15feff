package engine

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

var keyTime = time.UnixMilli(1_900_000_000_123).UTC()

// testKey returns a fixed key.
func testKey(n byte) room.SigningKey {
	return room.SigningKey{ID: fmt.Sprintf("%08x", 0xabcd0000+uint32(n)), Secret: bytes.Repeat([]byte{n}, secretSize), CreatedAt: keyTime}
}

func testRing(t testing.TB, keys ...room.SigningKey) *Keyring {
	t.Helper()
	ring, err := NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func testRoom(name, generation string) *Room {
	return &Room{Name: name, Generation: generation, Seed: bytes.Repeat([]byte{7}, 32), Epoch: 3}
}

func TestNewSigningKey(t *testing.T) {
	a, err := NewSigningKey(keyTime)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewSigningKey(keyTime)
	if err != nil {
		t.Fatal(err)
	}
	if a.ID == b.ID || bytes.Equal(a.Secret, b.Secret) || !a.CreatedAt.Equal(keyTime) {
		t.Errorf("two keys are %+v and %+v", a, b)
	}
	testRing(t, a, b)
}

// A key that is logged by mistake does not reveal its secret.
func TestSigningKeyIsNotLogged(t *testing.T) {
	key := room.SigningKey{ID: "0123abcd", Secret: []byte("the secret of a signing key, ok?")}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("message", "key", key)
	slog.New(slog.NewTextHandler(&log, nil)).Info("message", "key", key)
	fmt.Fprintf(&log, "%v %+v %s", key, key, []room.SigningKey{key})
	for _, secret := range []string{string(key.Secret), base64.StdEncoding.EncodeToString(key.Secret), fmt.Sprint(key.Secret)} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the secret was logged: %s", log.String())
		}
	}
	if !strings.Contains(log.String(), key.ID) {
		t.Errorf("the ID was not logged: %s", log.String())
	}
}

func TestNewKeyringRefuses(t *testing.T) {
	many := make([]room.SigningKey, MaxKeys+1)
	for i := range many {
		many[i] = testKey(byte(i))
	}
	testRing(t, many[1:]...)
	for name, keys := range map[string][]room.SigningKey{
		"none":          nil,
		"too many":      many,
		"twice":         {testKey(1), testKey(2), testKey(1)},
		"short ID":      {{ID: "abcd", Secret: testKey(1).Secret}},
		"capital ID":    {{ID: "ABCD0001", Secret: testKey(1).Secret}},
		"no number":     {{ID: "abcdxyz1", Secret: testKey(1).Secret}},
		"signed number": {{ID: "+bcd0001", Secret: testKey(1).Secret}},
		"short secret":  {{ID: "abcd0001", Secret: []byte("short")}},
	} {
		if ring, err := NewKeyring(keys); err == nil {
			t.Errorf("%s: %v", name, ring.keys)
		}
	}
}

func TestRotate(t *testing.T) {
	hours := func(ages ...int) []room.SigningKey {
		keys := make([]room.SigningKey, len(ages))
		for i, age := range ages {
			keys[i] = testKey(byte(i))
			keys[i].CreatedAt = keyTime.Add(-time.Duration(age) * time.Hour)
		}
		return keys
	}
	full := func(oldest, next int) []room.SigningKey {
		ages := make([]int, MaxKeys)
		ages[0], ages[1] = oldest, next
		return hours(ages...)
	}
	for _, test := range []struct {
		name string
		keys []room.SigningKey
		left int
	}{
		{"the first key", nil, 0},
		{"one that is old signed until now", hours(10_000), 1},
		{"replaced 8 days ago", hours(10_000, 192), 2},
		{"replaced longer ago than 8 days", hours(10_000, 193), 1},
		{"many of which some were replaced long ago", hours(10_000, 500, 400, 300, 100, 50, 1), 4},
		{"one less than full", full(50, 1)[1:], MaxKeys - 1},
		{"full, and the oldest may go", full(50, 49), MaxKeys - 1},
		{"full, and the oldest may be needed", full(50, 48), -1},
	} {
		fresh := testKey(255)
		got, err := Rotate(test.keys, fresh, keyTime)
		if test.left < 0 {
			if !errors.Is(err, ErrRingFull) {
				t.Errorf("%s: %v, want ErrRingFull", test.name, err)
			}
			continue
		}
		if err != nil || len(got) != test.left+1 || got[test.left].ID != fresh.ID {
			t.Fatalf("%s: %v, %v, want %d and the fresh one", test.name, got, err, test.left)
		}
		for i, key := range got[:test.left] {
			if key.ID != test.keys[len(test.keys)-test.left+i].ID {
				t.Errorf("%s: it left %v", test.name, got)
			}
		}
	}
	if _, err := Rotate(hours(5, 4), testKey(0), keyTime); err == nil {
		t.Error("a fresh key with the ID of another was taken")
	}
}

// For any times of rotation, the ring is bounded, and a ticket that was signed within KeepKey can
// be read.
func TestRotateLosesNobody(t *testing.T) {
	r := testRoom("shop", "g")
	rapid.Check(t, func(t *rapid.T) {
		type signed struct {
			by room.SigningKey
			at time.Time
		}
		keys, now := []room.SigningKey{testKey(0)}, keyTime
		var all []signed
		for n := range rapid.IntRange(1, 100).Draw(t, "rotations") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "hours")/10) * time.Hour)
			all = append(all, signed{keys[len(keys)-1], now})
			fresh := testKey(byte(n + 1))
			fresh.CreatedAt = now
			rotated, err := Rotate(keys, fresh, now)
			if err == nil {
				keys = rotated
			} else if !errors.Is(err, ErrRingFull) || len(keys) != MaxKeys {
				t.Fatal(err)
			}
		}
		ring, err := NewKeyring(keys)
		if err != nil {
			t.Fatal(err)
		}
		one := rapid.SampledFrom(all).Draw(t, "a ticket")
		signer, err := NewKeyring([]room.SigningKey{one.by})
		if err != nil {
			t.Fatal(err)
		}
		want := Ticket{Number: 5}
		if got, err := ring.ParseTicket(r, signer.SignTicket(r, want)); now.Sub(one.at) <= KeepKey && (err != nil || got != want) {
			t.Fatalf("a ticket of %v ago: %v, %v", now.Sub(one.at), got, err)
		}
	})
}

func TestJWKS(t *testing.T) {
	ring := testRing(t, testKey(1), testKey(2))
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(ring.JWKS(), &set); err != nil || len(set.Keys) != 2 {
		t.Fatalf("%s: %v", ring.JWKS(), err)
	}
	for i, key := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(key["x"])
		if err != nil || len(x) != ed25519.PublicKeySize || len(key) != 6 || key["kty"] != "OKP" || key["crv"] != "Ed25519" ||
			key["use"] != "sig" || key["alg"] != "EdDSA" || key["kid"] != testKey(byte(i+1)).ID {
			t.Errorf("key %d: %v, %v", i, key, err)
		}
	}
}
