package topic

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
)

// Spec describes a topic to create.
type Spec struct {
	// Name consists of letters, digits, ".", "_" and "-", at most 249 characters.
	Name string
	// Partitions is the number of partitions; 0 means the broker's default. A view
	// has the partitions of its source: leave it 0.
	Partitions int32
	// Replicas is the number of brokers that keep each partition; 0 means the
	// default, see Config.Replicas.
	Replicas int16
	// Assignment lists the brokers that keep each partition, the preferred leader
	// first, in place of Partitions and Replicas.
	Assignment [][]int32
	// Settings are the topic's own settings, by name; see [SettingsTable].
	Settings map[string]string
	// Owner is the account that creates it; "" if there is none. At most 300 bytes.
	Owner string
	// Lends means, of a view, that who creates it may read its source. Then whoever may read the view may do so without a right
	// to the source.
	Lends bool
}

// Quota is how much of something an owner may have made that still exists; 0 means any number.
type Quota struct {
	// Topics includes views; Partitions are those of the owner's topics, whoever added them.
	Topics, Partitions int
	// Groups are those that were made while the owner had a quota of groups.
	Groups int
}

// validName matches the names that Kafka allows, of any length: with one, it would take half of a megabyte.
var validName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// CheckName returns ErrInvalidName unless Kafka allows the name.
func CheckName(name string) error {
	if len(name) > 249 || !validName.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("%w %q: want 1 to 249 letters, digits, \".\", \"_\" and \"-\"", ErrInvalidName, name)
	}
	return nil
}

// ID identifies a topic: a topic that is deleted and created again has another ID.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// NewID returns a random identity.
func NewID() ID {
	var id ID
	_, _ = rand.Read(id[:]) // does not fail
	return id
}

// ParseID reads an identity as String writes it.
func ParseID(text string) (ID, error) {
	var id ID
	bytes, err := hex.DecodeString(text)
	if err != nil || len(bytes) != len(id) {
		return id, fmt.Errorf("id %q: want %d bytes in hexadecimal", text, len(id))
	}
	copy(id[:], bytes)
	return id, nil
}

// MarshalText writes an identity as String does, and UnmarshalText reads it as ParseID does.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}
