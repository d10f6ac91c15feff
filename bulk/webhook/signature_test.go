package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// The test vector of the reference libraries of Standard Webhooks.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

var otherSecret = secretOf(strings.Repeat("k", 32))

func secretOf(key string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(key))
}

func signedHeader(id, timestamp, signature string) http.Header {
	h := http.Header{}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, signature)
	return h
}

func TestSpecificationVector(t *testing.T) {
	at := time.Unix(vectorTimestamp, 0)
	got, err := Sign(vectorSecret, vectorID, at, []byte(vectorBody))
	if err != nil || got != vectorSignature {
		t.Fatalf("Sign = %q, %v; want %q", got, err, vectorSignature)
	}
	header := signedHeader(vectorID, strconv.Itoa(vectorTimestamp), vectorSignature)
	if err := Verify(vectorSecret, header, []byte(vectorBody), at, 0); err != nil {
		t.Fatalf("Verify: %v", err)
	}
}

var vectorTime = time.Unix(vectorTimestamp, 0)

func vectorHeader() http.Header {
	return signedHeader(vectorID, strconv.Itoa(vectorTimestamp), vectorSignature)
}

// with returns the vector's headers with one header set to values.
func with(name string, values ...string) http.Header {
	h := vectorHeader()
	h.Del(name)
	for _, value := range values {
		h.Add(name, value)
	}
	return h
}

var verifications = []struct {
	name      string
	secret    string
	header    http.Header
	body      string
	now       time.Time
	tolerance time.Duration
	want      error
}{
	{"valid", vectorSecret, vectorHeader(), vectorBody, vectorTime, time.Minute, nil},
	{"at the end of the tolerance", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(time.Minute), time.Minute, nil},
	{"clock behind, within", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(-time.Minute), time.Minute, nil},
	{"default tolerance", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(DefaultTolerance), 0, nil},
	{"beyond the default", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(DefaultTolerance + 1), 0, ErrTimestamp},
	{"negative tolerance is the default", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(DefaultTolerance), -1, nil},
	{"too old", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(time.Minute + 1), time.Minute, ErrTimestamp},
	{"too new", vectorSecret, vectorHeader(), vectorBody, vectorTime.Add(-time.Minute - 1), time.Minute, ErrTimestamp},
	{"absurdly new", vectorSecret, with(HeaderTimestamp, "9223372036854775807"), vectorBody, vectorTime, time.Minute, ErrTimestamp},
	{"second of two signatures", vectorSecret, with(HeaderSignature, "v1,AAAA "+vectorSignature), vectorBody, vectorTime, 0, nil},
	{"beside another scheme", vectorSecret, with(HeaderSignature, "v1a,AAAA "+vectorSignature), vectorBody, vectorTime, 0, nil},
	{"only another scheme", vectorSecret, with(HeaderSignature, "v2"+vectorSignature[2:]), vectorBody, vectorTime, 0, ErrSignature},
	{"signature without scheme", vectorSecret, with(HeaderSignature, vectorSignature[3:]), vectorBody, vectorTime, 0, ErrSignature},
	{"signature not base64", vectorSecret, with(HeaderSignature, "v1,***"), vectorBody, vectorTime, 0, ErrSignature},
	{"blank signature", vectorSecret, with(HeaderSignature, " "), vectorBody, vectorTime, 0, ErrSignature},
	{"other body", vectorSecret, vectorHeader(), vectorBody + " ", vectorTime, 0, ErrSignature},
	{"other id", vectorSecret, with(HeaderID, "msg_2"), vectorBody, vectorTime, 0, ErrSignature},
	{"other timestamp", vectorSecret, with(HeaderTimestamp, "1614265331"), vectorBody, vectorTime, 0, ErrSignature},
	{"other secret", otherSecret, vectorHeader(), vectorBody, vectorTime, 0, ErrSignature},
	{"no secret", "", vectorHeader(), vectorBody, vectorTime, 0, ErrSecret},
	{"no id", vectorSecret, with(HeaderID), vectorBody, vectorTime, 0, ErrHeaders},
	{"no timestamp", vectorSecret, with(HeaderTimestamp), vectorBody, vectorTime, 0, ErrHeaders},
	{"no signature", vectorSecret, with(HeaderSignature), vectorBody, vectorTime, 0, ErrHeaders},
	{"two ids", vectorSecret, with(HeaderID, vectorID, "another"), vectorBody, vectorTime, 0, ErrHeaders},
	{"timestamp not a number", vectorSecret, with(HeaderTimestamp, "today"), vectorBody, vectorTime, 0, ErrHeaders},
	{"timestamp signed", vectorSecret, with(HeaderTimestamp, "+1614265330"), vectorBody, vectorTime, 0, ErrHeaders},
	{"timestamp too long", vectorSecret, with(HeaderTimestamp, "99999999999999999999"), vectorBody, vectorTime, 0, ErrHeaders},
}

func TestVerify(t *testing.T) {
	for _, test := range verifications {
		t.Run(test.name, func(t *testing.T) {
			err := Verify(test.secret, test.header, []byte(test.body), test.now, test.tolerance)
			if !errors.Is(err, test.want) {
				t.Fatalf("Verify = %v; want %v", err, test.want)
			}
		})
	}
}

// TestVerifyRefusesAShiftedBody checks that a body that is the number 1614265330.5, signed a
// minute before, does not pass as the body 5 of a longer id.
func TestVerifyRefusesAShiftedBody(t *testing.T) {
	signature, err := Sign(vectorSecret, "act-0", vectorTime.Add(-time.Minute), []byte("1614265330.5"))
	if err != nil {
		t.Fatal(err)
	}
	header := signedHeader("act-0.1614265270", "1614265330", signature)
	if err := Verify(vectorSecret, header, []byte("5"), vectorTime, 0); !errors.Is(err, ErrHeaders) {
		t.Fatalf("Verify = %v; want %v", err, ErrHeaders)
	}
}

// TestSignatureCoversEverything checks that signed content verifies, and fails if one byte
// differs.
func TestSignatureCoversEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 24, 64).Draw(t, "key")
		id := rapid.StringMatching(`[A-Za-z0-9_:-]{1,40}-[0-9]{1,9}`).Draw(t, "id")
		body := rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "body")
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), 0)
		secret := secretOf(string(key))
		signature, err := Sign(secret, id, at, body)
		if err != nil {
			t.Fatal(err)
		}
		header := signedHeader(id, strconv.FormatInt(at.Unix(), 10), signature)
		if err := Verify(secret, header, body, at, 0); err != nil {
			t.Fatalf("Verify what was signed: %v", err)
		}
		place, bit := rapid.IntRange(0, len(body)-1).Draw(t, "place"), rapid.IntRange(0, 7).Draw(t, "bit")
		body[place] ^= 1 << bit
		if err := Verify(secret, header, body, at, 0); !errors.Is(err, ErrSignature) {
			t.Fatalf("Verify a changed body = %v", err)
		}
		body[place] ^= 1 << bit
		header.Set(HeaderID, id+"0")
		if err := Verify(secret, header, body, at, 0); !errors.Is(err, ErrSignature) {
			t.Fatalf("Verify a changed id = %v", err)
		}
	})
}

func TestParseSecret(t *testing.T) {
	for _, test := range []struct {
		name, secret string
		ok           bool
	}{
		{"the vector's, 24 bytes", vectorSecret, true},
		{"64 bytes", secretOf(strings.Repeat("k", 64)), true},
		{"23 bytes", secretOf(strings.Repeat("k", 23)), false},
		{"65 bytes", secretOf(strings.Repeat("k", 65)), false},
		{"empty", "", false},
		{"prefix only", "whsec_", false},
		{"no prefix", strings.TrimPrefix(vectorSecret, "whsec_"), false},
		{"a private key of the other scheme", "whsk_" + vectorSecret[6:], false},
		{"line break", vectorSecret + "\n", false},
		{"space", vectorSecret + " ", false},
		{"URL alphabet", "whsec_" + strings.Repeat("_-", 16), false},
		{"padding missing", strings.TrimRight(secretOf(strings.Repeat("k", 25)), "="), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := bulk.ParseSecret(test.secret)
			if (err == nil) != test.ok {
				t.Fatalf("ParseSecret = %v; want ok %t", err, test.ok)
			}
			if err != nil && !errors.Is(err, ErrSecret) {
				t.Fatalf("ParseSecret = %v; want it to wrap ErrSecret", err)
			}
		})
	}
}

func FuzzParseSecret(f *testing.F) {
	for _, seed := range []string{vectorSecret, otherSecret, "", "whsec_", "whsec_====", vectorSecret + "\n", "whsec_" + strings.Repeat("A", 200)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, secret string) {
		key, err := bulk.ParseSecret(secret)
		if err != nil {
			if rest := strings.TrimPrefix(secret, "whsec_"); len(rest) > 16 && strings.Contains(err.Error(), rest) {
				t.Fatalf("the error quotes the secret: %v", err)
			}
			return
		}
		// Every key has exactly one text.
		if got := secretOf(string(key)); got != secret {
			t.Fatalf("%q decodes to the key of %q", secret, got)
		}
	})
}
