package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"testing"

	client "github.com/twmb/franz-go/pkg/sasl/scram"
)

// one is the account of tests.
type one struct {
	Principal
	Manager
}

func (o one) Secret(secret string) (Principal, error) {
	if secret != "secret" {
		return nil, ErrProof
	}
	return o, nil
}

func (o one) Certificate(*x509.Certificate) (Principal, error) { return o, nil }

func (o one) Scram(_, _ string) (Principal, ScramKeys, error) {
	const iterations = 4096
	salt := []byte("salt")
	salted, err := pbkdf2.Key(sha256.New, "secret", salt, iterations, sha256.Size)
	sign := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign("Client Key"))
	return o, ScramKeys{Salt: salt, Iterations: iterations, StoredKey: stored[:], ServerKey: sign("Server Key")}, err
}

// begin returns a SCRAM login after its first message, and the client's last message.
func begin(t *testing.T) (login *Login, final []byte) {
	t.Helper()
	session, first, err := client.Auth{User: "shop", Pass: "secret"}.AsSha256Mechanism().Authenticate(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	login = &Login{Mechanism: ScramSHA256}
	challenge, principal, err := login.Step(one{}, first)
	if err != nil || principal != nil {
		t.Fatal(principal, err)
	}
	if _, final, err = session.Challenge(challenge); err != nil {
		t.Fatal(err)
	}
	return login, final
}

// A proof counts for its own login only, and whole.
func TestScramProofs(t *testing.T) {
	login, final := begin(t)
	_, other := begin(t)
	for name, test := range map[string]struct {
		message []byte
		want    error
	}{
		"another login's": {other, ErrMalformed},
		"a short":         {append(final[:len(final)-8:len(final)-8], "AAA="...), ErrProof},
		"no":              {final[:10], ErrMalformed},
	} {
		if _, _, err := login.Step(one{}, test.message); !errors.Is(err, test.want) {
			t.Errorf("%s proof: %v, want %v", name, err, test.want)
		}
	}
	if _, principal, err := login.Step(one{}, final); err != nil || principal != (one{}) {
		t.Errorf("the right proof: %v, %v", principal, err)
	}
}

// Messages that are not those of the mechanism are refused.
func TestMalformedMessages(t *testing.T) {
	for _, test := range []struct{ mechanism, message string }{
		{Plain, ""}, {Plain, "secret"}, {Plain, "\x00a\x00b\x00c"},
		{ScramSHA256, ""}, {ScramSHA256, "n,,n=shop"}, {ScramSHA256, "n,,n=shop,r="}, {ScramSHA256, "n,,m=1,n=shop,r=1"},
		{ScramSHA256, "n,a=other,n=shop,r=1"}, {ScramSHA512, "p=tls-unique,,n=shop,r=1"},
	} {
		login := Login{Mechanism: test.mechanism}
		if _, principal, err := login.Step(one{}, []byte(test.message)); !errors.Is(err, ErrMalformed) || principal != nil {
			t.Errorf("%s %q: %v, %v, want %v", test.mechanism, test.message, principal, err, ErrMalformed)
		}
	}
}

// A token is accepted in RFC 7628's form alone; a wrong one is refused in its two steps.
func TestBearer(t *testing.T) {
	step := func(login *Login, message string) (string, Principal, error) {
		answer, principal, err := login.Step(one{}, []byte(message))
		return string(answer), principal, err
	}
	for _, message := range []string{"n,,\x01auth=Bearer secret\x01\x01", "n,a=shop,\x01host=h\x01port=1\x01auth=bearer secret\x01\x01"} {
		if answer, principal, err := step(&Login{Mechanism: OAuthBearer}, message); err != nil || principal == nil || answer != "" {
			t.Errorf("%q: %q %v %v", message, answer, principal, err)
		}
	}
	for _, message := range []string{
		"", "secret", "n,,\x01auth=Bearer secret\x01", "n,,auth=Bearer secret\x01\x01", "y,,\x01auth=Bearer secret\x01\x01", "n,,\x01auth=Basic secret\x01\x01", "n,,\x01secret\x01\x01",
	} {
		if _, principal, err := step(&Login{Mechanism: OAuthBearer}, message); !errors.Is(err, ErrMalformed) || principal != nil {
			t.Errorf("%q: %v %v", message, principal, err)
		}
	}
	login := &Login{Mechanism: OAuthBearer}
	if answer, principal, err := step(login, "n,,\x01auth=Bearer wrong\x01\x01"); answer != refusal || principal != nil || err != nil {
		t.Errorf("a wrong token: %q %v %v", answer, principal, err)
	}
	for _, message := range []string{"\x01", "n,,\x01auth=Bearer secret\x01\x01"} {
		if _, principal, err := step(login, message); !errors.Is(err, ErrProof) || principal != nil {
			t.Errorf("after a refusal, %q: %v %v", message, principal, err)
		}
	}
}
