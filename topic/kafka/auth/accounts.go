package auth

import (
	"crypto/x509"
	"time"
)

// Accounts knows who may connect. All its methods but those of Manager are fast: they do no I/O. The texts of its
// errors are sent to clients.
type Accounts interface {
	// Secret returns the account that a secret belongs to.
	Secret(secret string) (Principal, error)
	// Certificate returns the account of a client's certificate, which was verified.
	Certificate(shown *x509.Certificate) (Principal, error)
	// Scram returns the account of a name, and its keys for a mechanism, SCRAM-SHA-256 or
	// SCRAM-SHA-512. With an error it returns keys too: for a name that nobody has they are always
	// the same ones, whose secret nobody knows. The client learns the error only if it proves to
	// know the secret, and so cannot find out which names exist.
	Scram(mechanism, name string) (Principal, ScramKeys, error)
	Manager
}

// Principal is an account that a client has proved to be.
type Principal interface {
	// Name returns the name of the account; no other has it.
	Name() string
	// Owner returns the owner of what the client creates; "" if that has none.
	Owner() string
	// Expires returns when the account ends; the zero time: never.
	Expires() time.Time
	// Valid reports whether the account still exists and has not expired.
	Valid() bool
	// May reports whether requests of a kind, by its number in the protocol, are allowed from a host,
	// an address, for a resource of that name.
	May(host string, request int16, of Resource, name string) bool
	// Meter returns what counts the bytes of a rate, ProducerRate or ConsumerRate, by a client's id; nil if there is no
	// quota for them.
	Meter(rate, client string) Meter
}

// Meter counts bytes against a quota. It is safe for concurrent use.
type Meter interface {
	// Spend counts bytes that a client has sent or gets, and returns how long it has to wait before its next request.
	Spend(bytes int64) time.Duration
	// Allowance returns how many bytes an answer may have now; 0 means that it must be empty.
	Allowance() int64
}

// Resource is a kind of thing that requests are about.
type Resource int

const (
	// Cluster has no name: it stands for the nodes and for all topics together.
	Cluster Resource = iota
	// Topic is a topic, also one that does not exist yet.
	Topic
	// Group is a consumer group.
	Group
	// Transaction is a transactional id.
	Transaction
)

// ScramKeys are what a server knows of a secret (RFC 5802).
type ScramKeys struct {
	Salt       []byte
	Iterations int
	// StoredKey and ServerKey are as long as the mechanism's hash.
	StoredKey, ServerKey []byte
}
