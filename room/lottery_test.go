package room

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// The draw is what anybody computes with openssl, as lottery.go says:
//
//	printf 0102030405060708 | xxd -r -p | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…07
func TestDrawIsPublished(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, 32)
	if got, want := Draw(seed, [8]byte{1, 2, 3, 4, 5, 6, 7, 8}), int64(0x6d510a8d01692); got != want {
		t.Errorf("the draw is %#x, want %#x", got, want)
	}
	const commitment = "4bb06f8e4e3a7715d201d573d0aa423762e55dabd61a2c02278fa56cc6d294e0"
	if got := Commitment(seed); got != commitment {
		t.Errorf("the commitment is %s, want %s", got, commitment)
	}
	if err := Verify(commitment, seed); err != nil {
		t.Error(err)
	}
	seed[0]++
	for _, wrong := range []string{commitment, "", commitment[:63], strings.ToUpper(commitment)} {
		if err := Verify(wrong, seed); !errors.Is(err, ErrSeed) {
			t.Errorf("another seed is that of %q: %v", wrong, err)
		}
	}
}

// Draws are uniform over the whole range: each of 64 parts has its share of 64,000 draws, within 5
// standard deviations.
func TestDrawIsEven(t *testing.T) {
	const parts, share = 64, 1000
	var counts [parts]int
	seed := bytes.Repeat([]byte{3}, 32)
	for n := range parts * share {
		draw := Draw(seed, [8]byte{byte(n), byte(n >> 8), byte(n >> 16)})
		if draw < 0 || draw > MaxDraw {
			t.Fatalf("a draw of %d", draw)
		}
		counts[draw*parts/(MaxDraw+1)]++
	}
	for part, count := range counts {
		if count < share-160 || count > share+160 {
			t.Errorf("part %d has %d draws, want about %d", part, count, share)
		}
	}
}

func TestSeedsAndNoncesDiffer(t *testing.T) {
	if a, b := NewSeed(), NewSeed(); bytes.Equal(a, b) || len(a) != 32 || len(b) != 32 {
		t.Errorf("two seeds are %s and %s", hex.EncodeToString(a), hex.EncodeToString(b))
	}
	if a, b := NewNonce(), NewNonce(); a == b {
		t.Errorf("two nonces are %x", a)
	}
}
