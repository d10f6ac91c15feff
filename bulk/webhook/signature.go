package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers of the Standard Webhooks specification.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// DefaultTolerance is the default of the difference that Verify allows between a request's
// timestamp and the receiver's clock.
const DefaultTolerance = 5 * time.Minute

// Errors that Verify wraps, and a receiver may branch on. ErrSecret is a mistake of the
// receiver; the others mean that the request is not to be trusted.
var (
	// ErrSecret: the text is not a secret.
	ErrSecret = errors.New("not a secret")
	// ErrHeaders: a header is missing, duplicate or malformed.
	ErrHeaders = errors.New("webhook headers are not complete")
	// ErrTimestamp: the request's timestamp is too far in the past or in the future.
	ErrTimestamp = errors.New("webhook timestamp is out of tolerance")
	// ErrSignature: no signature of the request was made with this secret.
	ErrSignature = errors.New("webhook signature does not match")
)

const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64
)

// parseSecret decodes a secret. Its error does not quote the text.
func parseSecret(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: want %q and base64", ErrSecret, secretPrefix)
	}
	// The decoder would ignore line breaks; in a secret they are a mistake.
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: what follows %q is not standard, padded base64", ErrSecret, secretPrefix)
	}
	if len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, want %d to %d", ErrSecret, len(key), minSecretBytes, maxSecretBytes)
	}
	return key, nil
}

// keyring holds the decoded secrets of all targets.
type keyring struct {
	common  [][]byte
	targets map[string][][]byte
}

func newKeyring(common []string, targets map[string][]string) (keyring, error) {
	ring := keyring{targets: make(map[string][][]byte, len(targets))}
	var err error
	if ring.common, err = parseSecrets(common); err != nil {
		return ring, fmt.Errorf("webhook: secrets, %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		if ring.targets[name], err = parseSecrets(targets[name]); err != nil {
			return ring, fmt.Errorf("webhook: secrets of target %q, %w", name, err)
		}
	}
	return ring, nil
}

// CheckSecrets returns an error if a secret of one target is invalid, or there are more than
// [MostSecrets]. The error does not quote the secrets. It wraps [ErrSecret] if one is
// invalid.
func CheckSecrets(secrets []string) error {
	_, err := parseSecrets(secrets)
	return err
}

func parseSecrets(secrets []string) ([][]byte, error) {
	if len(secrets) > MostSecrets {
		return nil, fmt.Errorf("%d of them: want at most %d", len(secrets), MostSecrets)
	}
	keys := make([][]byte, 0, len(secrets))
	for i, secret := range secrets {
		key, err := parseSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// keys returns the keys that sign requests to a target.
func (k keyring) keys(target string) [][]byte {
	if keys, listed := k.targets[target]; listed {
		return keys
	}
	return k.common
}

// signAll returns the value of the signature header: one signature for each key.
func signAll(keys [][]byte, id string, at time.Time, body []byte) string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(sum(key, id, timestamp, body))
	}
	return strings.Join(signatures, " ")
}

func sum(key []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign returns the value of the webhook-signature header for one secret: for senders, and for
// tests of receivers. The error wraps ErrSecret.
func Sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := parseSecret(secret)
	if err != nil {
		return "", err
	}
	return signAll([][]byte{key}, id, at, body), nil
}

// Verify checks, for a receiver, that a request's headers and body were signed with the
// secret, at most tolerance before or after now; 0 or less is DefaultTolerance. Pass the body
// as received, not decoded and encoded again. During a rotation, a receiver may try one
// secret after another. The error wraps one of ErrSecret, ErrHeaders, ErrTimestamp and
// ErrSignature.
//
// A request may be received twice (it is sent again if its answer was lost): recognize it by
// its webhook-id. The signed content joins id, timestamp and body with full stops, so treat a
// body that is not JSON as a forgery.
func Verify(secret string, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	key, err := parseSecret(secret)
	if err != nil {
		return err
	}
	id, timestamp, signatures, err := signedHeaders(header)
	if err != nil {
		return err
	}
	if err := checkTimestamp(timestamp, now, tolerance); err != nil {
		return err
	}
	want := sum(key, id, timestamp, body)
	for signature := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		if !ok {
			continue // another scheme
		}
		if got, err := base64.StdEncoding.DecodeString(encoded); err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("%w: the secret, or the body, is not the one that was signed", ErrSignature)
}

func signedHeaders(header http.Header) (id, timestamp, signatures string, err error) {
	for _, h := range []struct {
		name  string
		value *string
	}{{HeaderID, &id}, {HeaderTimestamp, &timestamp}, {HeaderSignature, &signatures}} {
		values := header.Values(h.name)
		if len(values) != 1 || values[0] == "" {
			return "", "", "", fmt.Errorf("%w: want %s once, with a value", ErrHeaders, h.name)
		}
		*h.value = values[0]
	}
	// Signed content whose body begins with a timestamp could be read as that of a longer id.
	// The last part of a job's id has a hyphen.
	if at := strings.LastIndexByte(id, '.'); at >= 0 && digits(id[at+1:]) {
		return "", "", "", fmt.Errorf("%w: %s ends like a timestamp", ErrHeaders, HeaderID)
	}
	return id, timestamp, signatures, nil
}

func checkTimestamp(timestamp string, now time.Time, tolerance time.Duration) error {
	if tolerance <= 0 {
		tolerance = DefaultTolerance
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || !digits(timestamp) {
		return fmt.Errorf("%w: want %s in whole seconds since 1970", ErrHeaders, HeaderTimestamp)
	}
	// Sub saturates, so an absurd timestamp is simply far away.
	switch away := now.Sub(time.Unix(seconds, 0)); {
	case away > tolerance:
		return fmt.Errorf("%w: it was made more than %s ago", ErrTimestamp, tolerance)
	case away < -tolerance:
		return fmt.Errorf("%w: it is more than %s in the future", ErrTimestamp, tolerance)
	}
	return nil
}
