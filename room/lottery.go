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

// The lottery orders those who came before the opening by their draw, the lowest
// first, and of two with the same draw the one who came first. The draw is
//
//	the first 52 bits of HMAC-SHA256(key: the room's seed, message: the ticket's nonce)
//
// The seed is chosen when the room is made. Its commitment, the SHA-256 of it, may be
// published before the first visitor comes, and the seed itself once the room has
// opened. Then anybody can check that the seed was not changed after it was seen who
// came, and with the nonce in the own ticket (bytes 13 to 20 of what its base64url
// stands for) the own draw, which is the first 13 hexadecimal digits of
//
//	printf NONCE | xxd -r -p | openssl dgst -sha256 -mac HMAC -macopt hexkey:SEED
//
// The nonce is random, or for a visitor with a key derived from it, so that one who
// leaves and comes again has the same draw. The operator makes seed and nonces, so this
// does not prove that an operator has not looked for a good nonce for somebody; it shows
// that nobody's place was changed after the ticket was given.

// seedSize is the bytes of a room's seed.
const seedSize = 32

// ErrSeed: the seed is not the one that was committed to.
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

// Commitment is the SHA-256 of a seed in hexadecimal digits.
func Commitment(seed []byte) string {
	sum := sha256.Sum256(seed)
	return hex.EncodeToString(sum[:])
}

// Verify returns nil if the seed is the one of a commitment, and ErrSeed otherwise.
func Verify(commitment string, seed []byte) error {
	if subtle.ConstantTimeCompare([]byte(Commitment(seed)), []byte(commitment)) != 1 {
		return ErrSeed
	}
	return nil
}

// Draw is the place of a nonce in the lottery of a seed: 0 to MaxDraw, evenly.
func Draw(seed []byte, nonce [8]byte) int64 {
	mac := hmac.New(sha256.New, seed)
	mac.Write(nonce[:])
	return int64(binary.BigEndian.Uint64(mac.Sum(nil)) >> 12)
}

// HashKey is what a store knows a visitor's key by, in this room of this generation;
// it is never the zero Key. It depends on the room's seed, which no event and no
// ticket carries: who has only those cannot try keys.
func HashKey(r *Room, visitorKey string) Key {
	key := Key(fromKey(r, "sluice room visitor", visitorKey))
	if key == (Key{}) {
		key[0] = 1 // the zero Key means none
	}
	return key
}

// KeyNonce is the nonce of the ticket of a visitor with a key: the same whenever it
// comes, so that the same ticket can be signed again and a lottery has one draw for it.
func KeyNonce(r *Room, visitorKey string) [8]byte {
	return [8]byte(fromKey(r, "sluice room nonce", visitorKey))
}

// fromKey derives bytes from a visitor's key. The message is longer than a nonce, so
// that it is never that of a draw.
func fromKey(r *Room, purpose, visitorKey string) []byte {
	mac := hmac.New(sha256.New, r.Seed)
	message := make([]byte, 0, 128)
	message = append(append(message, purpose...), 0)
	message = append(append(message, byte(len(r.Generation))), r.Generation...)
	mac.Write(append(message, visitorKey...))
	return mac.Sum(message[:0])[:len(Key{})]
}
