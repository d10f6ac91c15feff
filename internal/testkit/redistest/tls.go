package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is the validity of certificates: longer than any test.
const certificateLife = 24 * time.Hour

// CAFile returns the path of the certificate, in PEM, of the authority of a server with
// Options.TLS. A process trusts it with SSL_CERT_FILE in its environment.
func (s *Server) CAFile() string { return filepath.Join(s.folder, "ca.pem") }

func (s *Server) certFile() string { return filepath.Join(s.folder, "server.pem") }

func (s *Server) keyFile() string { return filepath.Join(s.folder, "server.key") }

// clientTLS returns the config of a client that trusts only CAFile.
func (s *Server) clientTLS() (*tls.Config, error) {
	authority, err := os.ReadFile(s.CAFile())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the authority's file has no certificate")
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// certify creates an authority and a certificate of 127.0.0.1, and writes them to the server's
// folder.
func (s *Server) certify() {
	s.t.Helper()
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "redistest server"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	authorityKey, serverKey := s.newKey(), s.newKey()
	s.sign(s.CAFile(), authority, authority, authorityKey, authorityKey)
	s.sign(s.certFile(), server, authority, serverKey, authorityKey)
	encoded, err := x509.MarshalPKCS8PrivateKey(serverKey)
	if err != nil {
		s.t.Fatal(err)
	}
	s.writePEM(s.keyFile(), "PRIVATE KEY", encoded)
}

func (s *Server) newKey() *ecdsa.PrivateKey {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

func (s *Server) sign(path string, certificate, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) {
	s.t.Helper()
	signed, err := x509.CreateCertificate(rand.Reader, certificate, by, &key.PublicKey, byKey)
	if err != nil {
		s.t.Fatal(err)
	}
	s.writePEM(path, "CERTIFICATE", signed)
}

func (s *Server) writePEM(path, kind string, content []byte) {
	s.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
