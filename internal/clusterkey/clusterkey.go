package clusterkey

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
)

// Use is what a key is for. Its text never changes: both ends derive the same key from it.
type Use string

const (
	// Routes is the password of the connections between nodes.
	Routes Use = "sluice cluster routes 1"
	// Migration is the bearer token of requests that migrate topics.
	Migration Use = "sluice cluster migration 1"
	// Kafka is the password of a node for the Kafka ports of the others.
	Kafka Use = "sluice cluster kafka 1"
)

// Derive returns the key for a use: 64 hexadecimal digits.
func Derive(secret string, use Use) string {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, string(use), sha256.Size)
	if err != nil {
		panic(err) // only for keys that are too long
	}
	return hex.EncodeToString(key)
}
