package room

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// The lottery orders the visitors who came before the opening by their draws, the lowest
// first, and equal draws by arrival. The draw is
//
//	the first 52 bits of HMAC-SHA256(key: the room's seed, message: the ticket's nonce)
//
// The seed is chosen when the room is created. Its commitment, its SHA-256, may be
// published before the first visitor comes, and the seed itself once the room has opened.
// Then anybody can check that the seed was not changed after visitors came. A visitor can
// check the own draw with the nonce of the own ticket (bytes 13 to 20 of the decoded
// base64url): it is the first 13 hexadecimal digits of
//
//	printf NONCE | xxd -r -p | openssl dgst -sha256 -mac HMAC -macopt hexkey:SEED
//
// The nonce is random, or derived from the visitor's key, so that a visitor who leaves and
// comes again has the same draw. The operator makes seed and nonces, so this does not
// prove that an operator has not searched a good nonce for somebody; it shows that no
// place was changed after the ticket was issued.

// seedSize is the bytes of a room's seed.
const seedSize = 32

// ErrSeed: the seed does not match the commitment.
var ErrSeed = errors.New("the seed is not the one of this commitment")

// NewSeed returns 32 random bytes.
func NewSeed() []byte {
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails: the program ends if there is no randomness
	return seed
}

// NewNonce returns 8 random bytes, for the ticket of a visitor without a key.
func NewNonce() [8]byte {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // as in NewSeed
	return nonce
}

// Commitment returns the SHA-256 of a seed in hexadecimal digits.
func Commitment(seed []byte) string {
	sum := sha256.Sum256(seed)
	return hex.EncodeToString(sum[:])
}

// Verify returns nil if the seed matches a commitment, and ErrSeed otherwise.
func Verify(commitment string, seed []byte) error {
	if subtle.ConstantTimeCompare([]byte(Commitment(seed)), []byte(commitment)) != 1 {
		return ErrSeed
	}
	return nil
}

// Draw returns the place of a nonce in the lottery of a seed: 0 to MaxDraw, evenly
// distributed.
func Draw(seed []byte, nonce [8]byte) int64 {
	mac := hmac.New(sha256.New, seed)
	mac.Write(nonce[:])
	return int64(binary.BigEndian.Uint64(mac.Sum(nil)) >> 12)
}
