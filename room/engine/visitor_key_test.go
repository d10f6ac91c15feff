package engine

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

// Values derived from a visitor's key are always the same, and depend on the key, the room's seed
// and its generation.
func TestFromKey(t *testing.T) {
	text := rapid.StringN(0, 20, 256)
	rapid.Check(t, func(t *rapid.T) {
		key, other := text.Draw(t, "key"), text.Draw(t, "other")
		generation, otherGeneration := text.Draw(t, "generation"), text.Draw(t, "other generation")
		r := testRoom("shop", generation)
		if HashKey(r, key) != HashKey(testRoom("shop", generation), key) || KeyNonce(r, key) != KeyNonce(testRoom("shop", generation), key) {
			t.Fatal("it is not the same again")
		}
		seeded := testRoom("shop", generation)
		seeded.Seed = bytes.Repeat([]byte{8}, 32)
		if HashKey(r, key) == HashKey(seeded, key) || KeyNonce(r, key) == KeyNonce(seeded, key) {
			t.Fatal("the seed does not matter")
		}
		moved := testRoom("shop", otherGeneration)
		if (generation != otherGeneration || key != other) && (HashKey(r, key) == HashKey(moved, other) || KeyNonce(r, key) == KeyNonce(moved, other)) {
			t.Fatalf("key %q of %q is as %q of %q", key, generation, other, otherGeneration)
		}
		hash, nonce := HashKey(r, key), KeyNonce(r, key)
		if hash == (room.Key{}) || bytes.Equal(hash[:8], nonce[:]) {
			t.Fatalf("the hash is %x, the nonce %x", hash, nonce)
		}
	})
}

// The boundary between the generation and the key matters too.
func TestFromKeyParts(t *testing.T) {
	if HashKey(testRoom("shop", "a"), "bc") == HashKey(testRoom("shop", "ab"), "c") {
		t.Error("key bc of a is as key c of ab")
	}
}

func BenchmarkHashKeyAndNonce(b *testing.B) {
	r := testRoom("shop", "0123456789abcdef0123456789abcdef")
	b.ReportAllocs()
	for b.Loop() {
		HashKey(r, "user-1234567")
		KeyNonce(r, "user-1234567")
	}
}
