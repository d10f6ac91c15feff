package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// The headers of the Standard Webhooks specification.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const headerTenant = "Sluice-Tenant"

// DefaultTolerance is the default of the difference that Verify allows between a request's
// timestamp and the receiver's clock.
const DefaultTolerance = 5 * time.Minute

// Errors that Verify wraps, and a receiver may branch on. ErrSecret is a mistake of the
// receiver; the others mean that the request is not to be trusted.
var (
	// ErrSecret: the text is not a secret.
	ErrSecret = bulk.ErrSecret
	// ErrHeaders: a header is missing, duplicate or malformed.
	ErrHeaders = errors.New("webhook headers are not complete")
	// ErrTimestamp: the request's timestamp is too far in the past or in the future.
	ErrTimestamp = errors.New("webhook timestamp is out of tolerance")
	// ErrSignature: no signature of the request was made with this secret.
	ErrSignature = errors.New("webhook signature does not match")
)

// keyring holds the decoded secrets of all targets.
type keyring struct {
	common  [][]byte
	targets map[string][][]byte
}

func newKeyring(common []string, targets map[string][]string) (keyring, error) {
	ring := keyring{targets: make(map[string][][]byte, len(targets))}
	var err error
	if ring.common, err = bulk.ParseSecrets(common); err != nil {
		return ring, fmt.Errorf("webhook: secrets, %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		if ring.targets[name], err = bulk.ParseSecrets(targets[name]); err != nil {
			return ring, fmt.Errorf("webhook: secrets of target %q, %w", name, err)
		}
	}
	return ring, nil
}

// CheckSecrets returns an error if a secret of one target is invalid, or there are more than
// [MostSecrets]. The error does not quote the secrets. It wraps [ErrSecret] if one is
// invalid.
func CheckSecrets(secrets []string) error {
	_, err := bulk.ParseSecrets(secrets)
	return err
}

// keys returns the keys that sign the requests of a job. Secrets of a target sign only where its
// prefix keeps its requests, or anyone who may name the target could have them sign for another.
func (k keyring) keys(job *bulk.Job) ([][]byte, error) {
	name, prefixed := job.Spec.Target.Name, job.Target != nil && job.Target.URLPrefix != ""
	if prefixed && len(job.Target.Secrets) > 0 {
		return bulk.ParseSecrets(job.Target.Secrets)
	}
	keys, listed := k.targets[name]
	switch {
	case listed && len(keys) > 0 && !prefixed:
		return nil, finalError{fmt.Errorf("target %q has secrets in webhook.target_secrets and no url_prefix, below which they sign: an operator sets it with PUT /v1/targets/{name}", name)}
	case listed:
		return keys, nil
	default:
		return k.common, nil
	}
}

// signAll returns the value of the signature header: of each key the signature v1, and then of
// each key the signature v1s.
func signAll(keys [][]byte, m *message) string {
	signatures := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		signatures = append(signatures, schemeV1+base64.StdEncoding.EncodeToString(m.v1(key)))
	}
	for _, key := range keys {
		if m.audience != "" {
			signatures = append(signatures, schemeV1S+base64.StdEncoding.EncodeToString(m.v1s(key)))
		}
	}
	return strings.Join(signatures, " ")
}

// The schemes of signatures. Libraries of Standard Webhooks know the first, and skip the other.
const (
	schemeV1  = "v1,"
	schemeV1S = "v1s,"
)

// message is the signed content of a request.
type message struct {
	id, timestamp string
	// tenant and audience are for v1s only. The audience is that of audienceOf.
	tenant, audience string
	body             []byte
}

// v1 is the signature of Standard Webhooks.
func (m *message) v1(key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(m.id + "." + m.timestamp + "."))
	mac.Write(m.body)
	return mac.Sum(nil)
}

// v1s covers for whom the request is, too. Each part has its length before it, so that no two
// messages have the same content; and no id has the comma of the first part, so that no v1 has it.
func (m *message) v1s(key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{"v1s", m.id, m.timestamp, m.tenant, m.audience} {
		mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part + ","))
	}
	mac.Write([]byte(strconv.Itoa(len(m.body)) + ":"))
	mac.Write(m.body)
	mac.Write([]byte(","))
	return mac.Sum(nil)
}

// audienceOf returns what v1s signs of a URL: scheme and host in lower case, the port unless it is
// the scheme's own, and the path, which is at least a slash; without user and query.
func audienceOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch own := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; {
	case u.Port() == "":
		host = strings.TrimSuffix(host, ":")
	default:
		host = strings.TrimSuffix(host, own)
	}
	return u.Scheme + "://" + host + cmp.Or(u.EscapedPath(), "/")
}

// Sign returns the value of the webhook-signature header for one secret: for senders, and for
// tests of receivers. The error wraps ErrSecret.
func Sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := bulk.ParseSecret(secret)
	if err != nil {
		return "", err
	}
	return signAll([][]byte{key}, &message{id: id, timestamp: strconv.FormatInt(at.Unix(), 10), body: body}), nil
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
	return verify(secret, header, &message{body: body}, schemeV1, (*message).v1, now, tolerance)
}

// VerifyFor is Verify for a receiver that must know for whom a request is: it also checks that
// the request was signed for this URL, and returns the tenant that it was signed for, which the
// receiver must compare. So a request that Sluice made for another target, or for another tenant,
// does not pass where several share a secret. The URL is the receiver's own, as the target has
// it, before a proxy changes it; its user and its query do not matter.
//
// It needs the signature v1s, which Sluice sends beside that of Standard Webhooks, and the header
// Sluice-Tenant.
func VerifyFor(secret, receiver string, header http.Header, body []byte, now time.Time, tolerance time.Duration) (tenant string, err error) {
	u, err := url.Parse(receiver)
	if err != nil || u.Host == "" {
		return "", errors.New("the receiver's own URL: want one with scheme and host, such as https://api.example.com/hooks")
	}
	values := header.Values(headerTenant)
	if len(values) != 1 {
		return "", fmt.Errorf("%w: want %s once", ErrHeaders, headerTenant)
	}
	if tenant, err = url.PathUnescape(values[0]); err != nil {
		return "", fmt.Errorf("%w: %s is not percent-encoded", ErrHeaders, headerTenant)
	}
	m := &message{tenant: tenant, audience: audienceOf(u), body: body}
	if err := verify(secret, header, m, schemeV1S, (*message).v1s, now, tolerance); err != nil {
		return "", err
	}
	return tenant, nil
}

// verify checks that one of the signatures of a scheme is that of the message, whose id and
// timestamp are those of the headers.
func verify(secret string, header http.Header, m *message, scheme string, sum func(*message, []byte) []byte, now time.Time, tolerance time.Duration) error {
	key, err := bulk.ParseSecret(secret)
	if err != nil {
		return err
	}
	var signatures string
	if m.id, m.timestamp, signatures, err = signedHeaders(header); err != nil {
		return err
	}
	if err := checkTimestamp(m.timestamp, now, tolerance); err != nil {
		return err
	}
	want := sum(m, key)
	for signature := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(signature, scheme)
		if !ok {
			continue // another scheme
		}
		if got, err := base64.StdEncoding.DecodeString(encoded); err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("%w: the secret, or what was signed, is another", ErrSignature)
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
