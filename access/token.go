package access

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	stdhash "hash"
	"time"
)

// Prefix begins each secret, so that people and scanners recognize it.
const Prefix = "sluice_"

// The bytes of what is random.
const (
	secretBytes = 32
	saltBytes   = 16
	idBytes     = 8
)

// The mechanisms of SCRAM.
const (
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// ScramKeys are what a server needs to verify SCRAM (RFC 5802).
type ScramKeys struct {
	Salt       []byte `json:"salt"`
	Iterations int    `json:"iterations"`
	Stored     []byte `json:"stored"`
	Server     []byte `json:"server"`
}

// Iterations is how often SCRAM hashes the secret of a token.
const Iterations = 4096

// hash is the SHA-256 of a secret. It needs no salt: a secret has 256 random bits.
type hash = [sha256.Size]byte

// Token is a token as it is listed: whom it makes known, and since when.
type Token struct {
	Principal
	Created time.Time `json:"created"`
}

// record is a token as the document has it.
type record struct {
	Token
	Hash []byte  `json:"sha256"`
	Salt []byte  `json:"salt"`
	S256 keyPair `json:"scram_sha256"`
	S512 keyPair `json:"scram_sha512"`
}

// keyPair are the keys of SCRAM (RFC 5802) that a server keeps.
type keyPair struct {
	Stored []byte `json:"stored"`
	Server []byte `json:"server"`
}

// newSecret returns a secret.
func newSecret() string {
	return Prefix + base64.RawURLEncoding.EncodeToString(random(secretBytes))
}

func newID() string { return hex.EncodeToString(random(idBytes)) }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// setSecret keeps what proves that somebody has a secret.
func (r *record) setSecret(secret string) error {
	sum := sha256.Sum256([]byte(secret))
	r.Hash, r.Salt = sum[:], random(saltBytes)
	var err error
	if r.S256, err = scramKeys(sha256.New, secret, r.Salt); err != nil {
		return err
	}
	r.S512, err = scramKeys(sha512.New, secret, r.Salt)
	return err
}

// ScramSHA256Keys returns the keys of a secret that no token has.
func ScramSHA256Keys(secret string, salt []byte) (ScramKeys, error) {
	made, err := scramKeys(sha256.New, secret, salt)
	return ScramKeys{Salt: salt, Iterations: Iterations, Stored: made.Stored, Server: made.Server}, err
}

// scramKeys returns the keys of a secret, as RFC 5802 computes them. Secrets are ASCII, which SASLprep does not
// change.
func scramKeys[H stdhash.Hash](of func() H, secret string, salt []byte) (keyPair, error) {
	salted, err := pbkdf2.Key(of, secret, salt, Iterations, of().Size())
	if err != nil {
		return keyPair{}, err
	}
	return pairOf(of, salted), nil
}

// pairOf returns the keys of a salted secret.
func pairOf[H stdhash.Hash](of func() H, salted []byte) keyPair {
	sign := func(text string) []byte {
		mac := hmac.New(func() stdhash.Hash { return of() }, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := of()
	_, _ = stored.Write(sign("Client Key")) // it never fails
	return keyPair{Stored: stored.Sum(nil), Server: sign("Server Key")}
}
