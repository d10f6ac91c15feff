// Package jwks has the keys of an identity provider: a JSON Web Key Set (RFC 7517) at a URL or in a file.
//
//   - [Parse] reads a set: RSA, P-256 and Ed25519 keys that verify signatures. It ignores keys of other kinds.
//   - [Keys] follows a set, and finds keys without I/O.
//
// A set is replaced as a whole: a key that is not in the newest set is unknown. While no set can be read, the last one
// holds for [Survive].
package jwks
