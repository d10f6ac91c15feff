package engine

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/sluice-project/sluice/room"
)

// HashKey returns the hash by which a store knows a visitor's key, in this room of this
// generation; never the zero Key. It depends on the room's seed, which no event and no
// ticket carries: their readers cannot try keys.
func HashKey(r *Room, visitorKey string) room.Key {
	key := room.Key(fromKey(r, "sluice room visitor", visitorKey))
	if key == (room.Key{}) {
		key[0] = 1 // the zero Key means none
	}
	return key
}

// KeyNonce returns the nonce of the ticket of a visitor with a key: always the same, so
// that the same ticket can be signed again and the visitor has one draw in a lottery.
func KeyNonce(r *Room, visitorKey string) [8]byte {
	return [8]byte(fromKey(r, "sluice room nonce", visitorKey))
}

// fromKey derives bytes from a visitor's key. The message is longer than a nonce, and so
// differs from that of every draw.
func fromKey(r *Room, purpose, visitorKey string) []byte {
	mac := hmac.New(sha256.New, r.Seed)
	message := make([]byte, 0, 128)
	message = append(append(message, purpose...), 0)
	message = append(append(message, byte(len(r.Generation))), r.Generation...)
	mac.Write(append(message, visitorKey...))
	return mac.Sum(message[:0])[:len(room.Key{})]
}
