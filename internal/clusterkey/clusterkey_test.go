package clusterkey

import "testing"

// Other versions must derive the same keys, so they are fixed here.
func TestDerive(t *testing.T) {
	for use, want := range map[Use]string{
		Routes:    "0136efb2f5b66ec1b1b8b511ebf08e94013411e2f7deb700c5a3b75c2a39acd1",
		Migration: "1d1e37c9d6baf4c34d23d710e1e5f9b5247104f9d19f9c3443c9e403023cc669",
	} {
		if got := Derive("a secret of the tests", use); got != want {
			t.Errorf("%s: %s, want %s", use, got, want)
		}
	}
}
