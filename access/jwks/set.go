package jwks

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// The bounds of a set.
const (
	// MaxBytes is the most bytes of a set, and MaxKeys the most keys in it.
	MaxBytes = 256 << 10
	MaxKeys  = 100
	// The bits of an RSA key: fewer are weak, more are slow to verify.
	leastRSABits, mostRSABits = 2048, 8192
)

// The algorithms of signatures (RFC 7518, 8037).
const (
	RS256 = "RS256"
	ES256 = "ES256"
	EdDSA = "EdDSA"
)

// ID names a key. A key verifies one algorithm, so a token cannot choose another for it.
type ID struct{ KID, Algorithm string }

// Set has public keys: *rsa.PublicKey, *ecdsa.PublicKey and ed25519.PublicKey.
type Set map[ID]any

// jwk is a key as it is written.
type jwk struct {
	Kind      string `json:"kty"`
	KID       string `json:"kid"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N         string `json:"n"`
	E         string `json:"e"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// Parse reads a set. It ignores keys that are not for signatures, and those of kinds or algorithms that are not
// supported. Errors: it is no set or too large, two keys have the same ID, a key is malformed or weak, or none is left.
func Parse(text []byte) (Set, error) {
	var written struct{ Keys []jwk }
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("the key set has more than %d bytes", MaxBytes)
	}
	if err := json.Unmarshal(text, &written); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set: %w", err)
	}
	if len(written.Keys) > MaxKeys {
		return nil, fmt.Errorf("the key set has %d keys: want at most %d", len(written.Keys), MaxKeys)
	}
	set := Set{}
	for i := range written.Keys {
		k := &written.Keys[i]
		algorithm, key, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("key %d of the set: %w", i+1, err)
		}
		if key == nil || k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != algorithm {
			continue
		}
		id := ID{k.KID, algorithm}
		if set[id] != nil {
			return nil, fmt.Errorf("key %d of the set: another has the same kid", i+1)
		}
		set[id] = key
	}
	if len(set) == 0 {
		return nil, errors.New("the key set has no key for " + RS256 + ", " + ES256 + " or " + EdDSA)
	}
	return set, nil
}

// public returns the key and its algorithm; nil for a kind that is not supported.
func (k *jwk) public() (algorithm string, key any, err error) {
	switch {
	case k.Kind == "RSA":
		key, err = k.rsa()
		return RS256, key, err
	case k.Kind == "EC" && k.Curve == "P-256":
		x, y := decode(k.X), decode(k.Y)
		if len(x) != 32 || len(y) != 32 {
			return "", nil, errors.New("want x and y of 32 bytes")
		}
		key, err = ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		return ES256, key, err
	case k.Kind == "OKP" && k.Curve == "Ed25519":
		x := decode(k.X)
		if len(x) != ed25519.PublicKeySize {
			return "", nil, errors.New("want x of 32 bytes")
		}
		return EdDSA, ed25519.PublicKey(x), nil
	}
	return "", nil, nil
}

func (k *jwk) rsa() (*rsa.PublicKey, error) {
	n, e := new(big.Int).SetBytes(decode(k.N)), new(big.Int).SetBytes(decode(k.E))
	if bits := n.BitLen(); bits < leastRSABits || bits > mostRSABits {
		return nil, fmt.Errorf("an RSA key of %d bits: want %d to %d", bits, leastRSABits, mostRSABits)
	}
	if e.BitLen() > 31 || e.Int64() < 3 || e.Bit(0) == 0 {
		return nil, errors.New("want an odd exponent of 3 to 2^31-1")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

// decode returns the bytes of a text; nil if it is malformed.
func decode(text string) []byte {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return raw
}
