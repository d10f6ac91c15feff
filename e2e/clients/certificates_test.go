package clients

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
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// authority signs certificates into a folder.
type authority struct {
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue writes NAME.pem and NAME.key, of a certificate of a name; the first is that of the authority itself.
func (a *authority) issue(t *testing.T, name string) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	by, byKey := a.certificate, a.key
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		by, byKey = template, key
	}
	der := must(x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey))(t)
	if a.certificate == nil {
		a.certificate, a.key = must(x509.ParseCertificate(der))(t), key
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)},
	} {
		if err := os.WriteFile(filepath.Join(a.folder, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Clients with a certificate are its account: they may do what its grant says. Without one they get nothing.
func TestMutualTLS(t *testing.T) {
	a := &authority{folder: t.TempDir()}
	for _, name := range []string{"ca", "server", "till", "stranger"} {
		a.issue(t, name)
	}
	path := func(file string) string { return filepath.Join(a.folder, file) }
	t.Setenv("SLUICE_ACCESS_ADMIN_TOKEN", adminSecret)
	t.Setenv("SLUICE_ACCESS_GRANTS", "name:cert:till operator")
	_, _, addr := startNode(t, "--tls-cert-file", path("server.pem"), "--tls-key-file", path("server.key"), "--tls-client-ca-file", path("ca.pem"))
	till := must(tls.LoadX509KeyPair(path("till.pem"), path("till.key")))(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	eventually(t, "the server listens", func() bool {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{till}})
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	t.Run("kafka-go", func(t *testing.T) {
		for name, want := range map[string]error{"till": nil, "stranger": kafka.TopicAuthorizationFailed} {
			certificate := must(tls.LoadX509KeyPair(path(name+".pem"), path(name+".key")))(t)
			transport := &kafka.Transport{TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}}
			answer, err := (&kafka.Client{Addr: kafka.TCP(addr), Timeout: patience, Transport: transport}).CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
				Topics: []kafka.TopicConfig{{Topic: "of-" + name, NumPartitions: 1, ReplicationFactor: 1}},
			})
			transport.CloseIdleConnections()
			if err != nil || !errors.Is(answer.Errors["of-"+name], want) {
				t.Errorf("%s creates a topic: %v, %+v; want %v", name, err, answer, want)
			}
		}
	})
	t.Setenv("BROKER", addr)
	t.Setenv("CERTIFICATES", a.folder)
	t.Run("python", func(t *testing.T) { run(t, "python", "/usr/bin/python3", "certificates.py") })
	t.Run("kafkajs", func(t *testing.T) { runKafkaJS(t, "certificates.test.js") })
}
