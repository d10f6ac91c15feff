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
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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

// secured is a server with TLS.
type secured struct {
	api, addr string
	ca        string // the file with the certificate of its authority
	tls       *tls.Config
}

// serve starts a server with TLS and an admin token, and waits until it is ready. Clients of secured.tls show the certificates of names.
func (a *authority) serve(t *testing.T, names []string, args ...string) secured {
	t.Helper()
	s := secured{ca: filepath.Join(a.folder, "ca.pem"), tls: &tls.Config{RootCAs: x509.NewCertPool()}}
	s.tls.RootCAs.AddCert(a.certificate)
	for _, name := range names {
		shown := must(tls.LoadX509KeyPair(filepath.Join(a.folder, name+".pem"), filepath.Join(a.folder, name+".key")))(t)
		s.tls.Certificates = append(s.tls.Certificates, shown)
	}
	a.issue(t, "server")
	t.Setenv("SLUICE_ACCESS_ADMIN_TOKEN", adminSecret)
	_, s.api, s.addr = startNode(t, append(args, "--tls-cert-file", filepath.Join(a.folder, "server.pem"), "--tls-key-file", filepath.Join(a.folder, "server.key"))...)
	eventually(t, "the server is ready", func() bool {
		status, _ := s.do(t, http.MethodGet, "/readyz", "")
		return status == http.StatusOK
	})
	return s
}

// do makes a request over HTTP with the admin token, and returns the answer's status, 0 if there was none, and body.
func (s secured) do(t *testing.T, method, path, body string) (status int, answer []byte) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: s.tls, DisableKeepAlives: true}, Timeout: patience}
	request := must(http.NewRequestWithContext(t.Context(), method, "https://"+s.api+path, strings.NewReader(body)))(t)
	request.Header.Set("Authorization", "Bearer "+adminSecret)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// Clients with a certificate are its account: they may do what its grant says. Without one they get nothing.
func TestMutualTLS(t *testing.T) {
	a := &authority{folder: t.TempDir()}
	for _, name := range []string{"ca", "till", "stranger"} {
		a.issue(t, name)
	}
	path := func(file string) string { return filepath.Join(a.folder, file) }
	t.Setenv("SLUICE_ACCESS_GRANTS", "name:cert:till operator")
	s := a.serve(t, []string{"till"}, "--tls-client-ca-file", path("ca.pem"))
	t.Run("kafka-go", func(t *testing.T) {
		for name, want := range map[string]error{"till": nil, "stranger": kafka.TopicAuthorizationFailed} {
			certificate := must(tls.LoadX509KeyPair(path(name+".pem"), path(name+".key")))(t)
			transport := &kafka.Transport{TLS: &tls.Config{RootCAs: s.tls.RootCAs, Certificates: []tls.Certificate{certificate}}}
			answer, err := (&kafka.Client{Addr: kafka.TCP(s.addr), Timeout: patience, Transport: transport}).CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
				Topics: []kafka.TopicConfig{{Topic: "of-" + name, NumPartitions: 1, ReplicationFactor: 1}},
			})
			transport.CloseIdleConnections()
			if err != nil || !errors.Is(answer.Errors["of-"+name], want) {
				t.Errorf("%s creates a topic: %v, %+v; want %v", name, err, answer, want)
			}
		}
	})
	t.Setenv("BROKER", s.addr)
	t.Setenv("CERTIFICATES", a.folder)
	t.Run("python", func(t *testing.T) { run(t, "python", "/usr/bin/python3", "certificates.py") })
	t.Run("kafkajs", func(t *testing.T) { runKafkaJS(t, "certificates.test.js") })
}
