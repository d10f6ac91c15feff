package engine

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Keyring signs tickets and passes with the newest key, and accepts those that any of its
// keys signed. It is immutable, and safe for concurrent use.
type Keyring struct {
	keys     map[uint32]*ringKey
	newest   *ringKey
	jwks     []byte
	verified *passCache
}

// ringKey is a key with the keys derived from it.
type ringKey struct {
	id      uint32
	text    string // the ID as in SigningKey
	macs    sync.Pool
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// Bounds of the ring.
const (
	// MaxKeys is how many keys there may be.
	MaxKeys = 64
	// KeepKey is how long a key verifies, at least, after another has replaced it: longer
	// than a visitor may be silent and keep the place.
	KeepKey = 48 * time.Hour
	// DropKey is after how long a replaced key is dropped: nobody can be inside for so long
	// without getting a newer ticket.
	DropKey = 8 * 24 * time.Hour
)

// ErrRingFull: MaxKeys keys have been replaced within KeepKey.
var ErrRingFull = errors.New("there are 64 keys already, and visitors may still need each: rotate less often than once in 45 minutes")

// secretSize is the bytes of SigningKey.Secret.
const secretSize = 32

// NewSigningKey returns a random key.
func NewSigningKey(now time.Time) (room.SigningKey, error) {
	var id [4]byte
	secret := make([]byte, secretSize)
	if _, err := rand.Read(id[:]); err != nil {
		return room.SigningKey{}, err
	}
	if _, err := rand.Read(secret); err != nil {
		return room.SigningKey{}, err
	}
	return room.SigningKey{ID: hex.EncodeToString(id[:]), Secret: secret, CreatedAt: now.UTC().Truncate(time.Millisecond)}, nil
}

// Rotate returns the keys with a fresh one, which signs from then on. It drops keys that
// were replaced longer ago than DropKey, and from a full ring the oldest, if it was
// replaced longer ago than KeepKey; otherwise it returns ErrRingFull.
func Rotate(keys []room.SigningKey, fresh room.SigningKey, now time.Time) ([]room.SigningKey, error) {
	// A key was replaced when the next one was made.
	replaced := func(i int) time.Duration {
		if i+1 < len(keys) {
			return now.Sub(keys[i+1].CreatedAt)
		}
		return 0
	}
	first := 0
	for first < len(keys) && replaced(first) > DropKey {
		first++
	}
	for len(keys)-first >= MaxKeys {
		if replaced(first) <= KeepKey {
			return nil, ErrRingFull
		}
		first++
	}
	rotated := append(append(make([]room.SigningKey, 0, len(keys)-first+1), keys[first:]...), fresh)
	if err := checkKeys(rotated); err != nil {
		return nil, err
	}
	return rotated, nil
}

func checkKeys(keys []room.SigningKey) error {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return fmt.Errorf("a ring of %d keys: there can be 1 to %d", len(keys), MaxKeys)
	}
	seen := make(map[uint32]bool, len(keys))
	for _, key := range keys {
		id, ok := parseKeyID(key.ID)
		switch {
		case !ok:
			return fmt.Errorf("a key has the ID %.20q: it has 8 hexadecimal digits", key.ID)
		case len(key.Secret) != secretSize:
			return fmt.Errorf("key %s has a secret of %d bytes: it has %d", key.ID, len(key.Secret), secretSize)
		case seen[id]:
			return fmt.Errorf("key %s is there twice", key.ID)
		}
		seen[id] = true
	}
	return nil
}

// parseKeyID accepts exactly the form that NewSigningKey gives.
func parseKeyID(text string) (uint32, bool) {
	id, err := strconv.ParseUint(text, 16, 32)
	return uint32(id), err == nil && text == fmt.Sprintf("%08x", id)
}

// NewKeyring returns the ring of these keys, the oldest first: the last one signs.
// There are 1 to MaxKeys, with an ID and a secret each.
func NewKeyring(keys []room.SigningKey) (*Keyring, error) {
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	k := &Keyring{keys: make(map[uint32]*ringKey, len(keys)), verified: newPassCache(maxVerified)}
	var set jwkSet
	for _, key := range keys {
		made, err := newRingKey(key)
		if err != nil {
			return nil, err
		}
		k.keys[made.id], k.newest = made, made
		set.Keys = append(set.Keys, made.jwk())
	}
	var err error
	k.jwks, err = json.Marshal(set)
	return k, err
}

func newRingKey(key room.SigningKey) (*ringKey, error) {
	ticket, err := hkdf.Key(sha256.New, key.Secret, nil, "sluice room ticket 1", sha256.Size)
	if err != nil {
		return nil, err
	}
	seed, err := hkdf.Key(sha256.New, key.Secret, nil, "sluice room pass 1", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	made := &ringKey{text: key.ID, private: ed25519.NewKeyFromSeed(seed)}
	made.id, _ = parseKeyID(key.ID)
	made.public = made.private.Public().(ed25519.PublicKey)
	// A used HMAC is reset with two copies; a new one hashes the key twice.
	made.macs.New = func() any { return &ticketMAC{hash: hmac.New(sha256.New, ticket)} }
	return made, nil
}

// JWKS returns the public keys of passes as a JSON Web Key Set.
func (k *Keyring) JWKS() []byte { return k.jwks }

type jwkSet struct {
	Keys []jwk `json:"keys"`
}

// jwk is an Ed25519 key as RFC 8037 has it.
type jwk struct {
	Type      string `json:"kty"`
	Curve     string `json:"crv"`
	ID        string `json:"kid"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
}

func (k *ringKey) jwk() jwk {
	return jwk{"OKP", "Ed25519", k.text, "sig", "EdDSA", base64.RawURLEncoding.EncodeToString(k.public)}
}
