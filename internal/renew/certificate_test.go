package renew

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// pair returns a certificate with a name, and its key, in PEM.
func pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// replace puts a new file at a path, as renewals do.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// renewing is a certificate in files that are replaced while it is used.
type renewing struct {
	*testing.T
	certFile, keyFile string
	certificate       *Certificate
	log               bytes.Buffer
}

func newRenewing(t *testing.T, name string) *renewing {
	t.Helper()
	folder := t.TempDir()
	r := &renewing{T: t, certFile: filepath.Join(folder, "cert.pem"), keyFile: filepath.Join(folder, "key.pem")}
	cert, key := pair(t, name)
	replace(t, r.certFile, cert)
	replace(t, r.keyFile, key)
	var err error
	if r.certificate, err = LoadCertificate(r.certFile, r.keyFile, slog.New(slog.NewTextHandler(&r.log, nil))); err != nil {
		t.Fatal(err)
	}
	r.certificate.age = 0
	return r
}

// served returns the name of the certificate with which both ends of a new connection prove who
// they are.
func (r *renewing) served() string {
	r.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	server := tls.Server(here, &tls.Config{GetCertificate: r.certificate.Get, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12})
	client := tls.Client(there, &tls.Config{GetClientCertificate: r.certificate.GetClient, InsecureSkipVerify: true}) //nolint:gosec // the test reads its name
	var both errgroup.Group
	both.Go(func() error { return server.HandshakeContext(r.Context()) })
	both.Go(func() error { return client.HandshakeContext(r.Context()) })
	if err := both.Wait(); err != nil {
		r.Fatal(err)
	}
	name := client.ConnectionState().PeerCertificates[0].Subject.CommonName
	if of := server.ConnectionState().PeerCertificates[0].Subject.CommonName; of != name {
		r.Errorf("the client has the certificate %q, and the server %q", of, name)
	}
	return name
}

// count returns how many lines of the log have a text.
func (r *renewing) count(text string) int {
	return strings.Count(r.log.String(), text)
}

// Connections get the certificate that is in the files, and the old one until the pair is
// whole.
func TestRenewedCertificate(t *testing.T) {
	r := newRenewing(t, "first")
	cert, key := pair(t, "second")
	for _, step := range []struct {
		name   string
		change func()
		want   string
		errors int
	}{
		{"at first", func() {}, "first", 0},
		{"the certificate without its key", func() { replace(t, r.certFile, cert) }, "first", 1},
		{"no certificate", func() {
			if err := os.Remove(r.certFile); err != nil {
				t.Fatal(err)
			}
		}, "first", 1},
		{"a broken one", func() { replace(t, r.certFile, []byte("no PEM")) }, "first", 1},
		{"both", func() {
			replace(t, r.certFile, cert)
			replace(t, r.keyFile, key)
		}, "second", 1},
		{"nothing new", func() {}, "second", 1},
	} {
		step.change()
		for range 2 {
			if got := r.served(); got != step.want {
				t.Errorf("%s: it is %q, want %q", step.name, got, step.want)
			}
		}
		if n := r.count("level=ERROR"); n != step.errors {
			t.Errorf("%s: %d errors, want %d", step.name, n, step.errors)
		}
	}
	if n := r.count("the TLS certificate was renewed"); n != 1 {
		t.Errorf("%d lines about renewals, want 1", n)
	}
}

// The files are not looked at for each handshake.
func TestCertificateIsNotReadEachTime(t *testing.T) {
	r := newRenewing(t, "first")
	r.certificate.age = time.Hour
	cert, key := pair(t, "second")
	replace(t, r.certFile, cert)
	replace(t, r.keyFile, key)
	if got := r.served(); got != "first" {
		t.Errorf("within the hour: %q", got)
	}
}

func TestNoCertificate(t *testing.T) {
	if _, err := LoadCertificate(filepath.Join(t.TempDir(), "none"), "none", nil); err == nil {
		t.Error("a missing file is no error")
	}
}

// A certificate is complained of in the last tenth of its life, of a long one in the last 14 days.
func TestExpiring(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, test := range []struct {
		life, left time.Duration
		says       string // "": nothing
	}{
		{90 * day, 10 * day, ""}, {90 * day, 8 * day, `"shop" ends at 20`}, {365 * day, 15 * day, ""}, {365 * day, 13 * day, "ends at"}, {day, 3 * time.Hour, ""},
		{day, 2 * time.Hour, "ends at"}, {day, -time.Hour, "ended at"},
	} {
		end := time.Now().Add(test.left)
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "shop"}, NotBefore: end.Add(-test.life), NotAfter: end}
		err := Expiring(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &tls.Certificate{Leaf: leaf}, nil })
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%v of %v are left: error is %v, want %q", test.left, test.life, err, test.says)
		}
	}
}
