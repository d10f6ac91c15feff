package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// File is the path of its certificate, in PEM.
	File string

	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// life is the validity of certificates: longer than any test.
const life = 24 * time.Hour

// begin is when they become valid: before the time of tests in virtual time.
var begin = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// New returns an authority whose file ends with the test.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority " + rand.Text()},
		NotBefore: begin, NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	var der []byte
	a.key, der = a.sign(template, template, nil)
	a.certificate = must(x509.ParseCertificate(der))(t)
	a.write(a.File, "CERTIFICATE", der)
	return a
}

// Files are the paths of a certificate and its key.
type Files struct{ Cert, Key string }

// Issue returns a certificate with a name, for servers at 127.0.0.1 and for clients.
func (a *Authority) Issue(name string) Files {
	a.t.Helper()
	folder := a.t.TempDir()
	files := Files{filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")}
	a.IssueTo(files, name)
	return files
}

// IssueTo replaces the files of a certificate, as renewals do.
func (a *Authority) IssueTo(files Files, name string) {
	a.t.Helper()
	key, der := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: begin, NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}, a.certificate, a.key)
	a.write(files.Cert, "CERTIFICATE", der)
	a.write(files.Key, "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))(a.t))
}

// Revoke replaces a file with the revocation list of the authority, in PEM, which has the certificates.
func (a *Authority) Revoke(path string, all ...Files) {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(time.Now().UnixNano()), ThisUpdate: begin, NextUpdate: time.Now().Add(life)}
	for _, files := range all {
		pair := must(tls.LoadX509KeyPair(files.Cert, files.Key))(a.t)
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: pair.Leaf.SerialNumber, RevocationTime: begin})
	}
	a.write(path, "X509 CRL", must(x509.CreateRevocationList(rand.Reader, list, a.certificate, a.key))(a.t))
}

// Client returns the configuration of a client that trusts the authority and shows the certificates.
func (a *Authority) Client(shows ...Files) *tls.Config {
	a.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(a.certificate)
	for _, files := range shows {
		config.Certificates = append(config.Certificates, must(tls.LoadX509KeyPair(files.Cert, files.Key))(a.t))
	}
	return config
}

// sign makes a key and the certificate of it; without a key of the signer it signs itself.
func (a *Authority) sign(template, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	if byKey == nil {
		byKey = key
	}
	return key, must(x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey))(a.t)
}

// write replaces a file as a whole.
func (a *Authority) write(path, kind string, content []byte) {
	a.t.Helper()
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.t.Fatal(err)
	}
}

// must returns a function that fails a test if there was an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
