package renew

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
)

// stateOf returns the state of a server's connection with a client.
func stateOf(t *testing.T, server, client *tls.Config) tls.ConnectionState {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	client = client.Clone()
	client.ServerName = "localhost"
	served := tls.Server(here, server)
	var both errgroup.Group
	both.Go(func() error { return tls.Client(there, client).HandshakeContext(t.Context()) })
	both.Go(func() error { return served.HandshakeContext(t.Context()) })
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	return served.ConnectionState()
}

// A certificate that is revoked, or whose authority is taken away, is refused in handshakes, and is not good any more
// on open connections; others stay. Files that are wrong change nothing.
func TestRevokedCertificates(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	revocations := filepath.Join(t.TempDir(), "crl.pem")
	ours.Revoke(revocations)
	clients := clientsOf(t, ClientOptions{CAFile: ours.File, CRLFile: revocations, Optional: true})
	files, first, second := ours.Issue("server"), ours.Issue("first"), ours.Issue("second")
	config, err := ServerTLS(files.Cert, files.Key, clients, nil)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]tls.ConnectionState{
		"none": stateOf(t, config, ours.Client()), "first": stateOf(t, config, ours.Client(first)), "second": stateOf(t, config, ours.Client(second)),
	}
	for _, step := range []struct {
		name   string
		change func()
		want   map[string]string // the errors of open connections; of none: ""
	}{
		{"at first", func() {}, nil},
		{"the first is revoked", func() { ours.Revoke(revocations, first) }, map[string]string{"first": "was revoked"}},
		{"a list of another authority", func() { others.Revoke(revocations, second) }, map[string]string{"first": "was revoked"}},
		{"nothing in the list", func() { replace(t, revocations, nil) }, map[string]string{"first": "was revoked"}},
		{"the list is whole again", func() { ours.Revoke(revocations, first) }, map[string]string{"first": "was revoked"}},
		{"another authority", func() {
			others.Revoke(revocations)
			text, err := os.ReadFile(others.File)
			if err != nil {
				t.Fatal(err)
			}
			replace(t, ours.File, text)
		}, map[string]string{"first": "no authority", "second": "no authority"}},
	} {
		step.change()
		for name, state := range open {
			err := clients.Check(&state)
			if want := step.want[name]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the connection of %s: %v, want %q", step.name, name, err, want)
			}
		}
		if step.name == "the first is revoked" {
			if err := shake(t, config, ours.Client(first)); err == nil || !strings.Contains(err.Error(), "was revoked") {
				t.Errorf("a handshake with a revoked certificate: %v", err)
			}
			if err := shake(t, config, ours.Client(second)); err != nil {
				t.Error(err)
			}
		}
	}
}

// A change is known ClientAge after it; a certificate that has expired is not good.
func TestAgeOfClients(t *testing.T) {
	ours := certtest.New(t)
	revocations := filepath.Join(t.TempDir(), "crl.pem")
	ours.Revoke(revocations)
	files, mine := ours.Issue("server"), ours.Issue("client")
	clients, err := LoadClients(ClientOptions{CAFile: ours.File, CRLFile: revocations})
	if err != nil {
		t.Fatal(err)
	}
	config, err := ServerTLS(files.Cert, files.Key, clients, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := stateOf(t, config, ours.Client(mine))
	synctest.Test(t, func(t *testing.T) {
		clients.looked = time.Now()
		ours.Revoke(revocations, mine)
		if err := clients.Check(&state); err != nil {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(ClientAge)
		if err := clients.Check(&state); err == nil {
			t.Error("after ClientAge it is good")
		}
		ours.Revoke(revocations)
		if time.Sleep(ClientAge); clients.Check(&state) != nil {
			t.Error("it is not good again")
		}
		time.Sleep(50 * 365 * 24 * time.Hour)
		if err := clients.Check(&state); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("after its time: %v", err)
		}
	})
}

// Files that are not what they should be are errors, and a list that is out of date is a warning.
func TestFilesOfClients(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	folder := t.TempDir()
	of := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(folder, "foreign.pem")
	others.Revoke(foreign)
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("broken")})
	for name, options := range map[string]ClientOptions{
		"no file":                     {CAFile: filepath.Join(folder, "none")},
		"no authority":                {CAFile: of("key", []byte("no PEM"))},
		"a broken one":                {CAFile: of("broken", broken)},
		"too large":                   {CAFile: of("large", bytes.Repeat([]byte("\n"), maxAuthorities+1))},
		"no list":                     {CAFile: ours.File, CRLFile: ours.File},
		"no list in DER":              {CAFile: ours.File, CRLFile: of("der", []byte("no list"))},
		"a list of another authority": {CAFile: ours.File, CRLFile: foreign},
		"lists that are too large":    {CAFile: ours.File, CRLFile: of("lists", make([]byte, maxRevocations+1))},
	} {
		if _, err := LoadClients(options); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	authority, key := newAuthority(t, of)
	for name, test := range map[string]struct {
		list *x509.RevocationList
		der  bool
		want string // in the error; ! in the log; "": neither
	}{
		"a good one":        {&x509.RevocationList{NextUpdate: time.Now().Add(time.Hour)}, true, ""},
		"out of date":       {&x509.RevocationList{NextUpdate: time.Now().Add(-time.Hour)}, false, "!out of date"},
		"a list of changes": {&x509.RevocationList{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}}}, false, "critical extension 2.5.29.27"},
	} {
		test.list.Number, test.list.ThisUpdate = big.NewInt(1), time.Now().Add(-2*time.Hour)
		if test.list.NextUpdate.IsZero() {
			test.list.NextUpdate = time.Now().Add(time.Hour)
		}
		text, err := x509.CreateRevocationList(rand.Reader, test.list, authority, key)
		if err != nil {
			t.Fatal(err)
		}
		if !test.der {
			text = pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: text})
		}
		var log bytes.Buffer
		_, err = LoadClients(ClientOptions{CAFile: filepath.Join(folder, "authority"), CRLFile: of("list", text), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		warning, warned := strings.CutPrefix(test.want, "!")
		switch {
		case (err != nil) != (test.want != "" && !warned) || err != nil && !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case (log.Len() > 0) != warned || warned && !strings.Contains(log.String(), warning):
			t.Errorf("%s: logged %q, want %q", name, log.String(), test.want)
		}
	}
}

// newAuthority returns an authority with its key, whose certificate is in the file authority.
func newAuthority(t *testing.T, write func(name string, content []byte) string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte{1},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	write("authority", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority, key
}
