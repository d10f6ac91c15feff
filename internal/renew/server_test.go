package renew

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/internal/testkit/certtest"
)

// shake does the handshake of a server and a client, and returns the error of the server.
func shake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	here, there := net.Pipe()
	client = client.Clone()
	client.ServerName = "localhost"
	var both errgroup.Group
	both.Go(func() error {
		defer there.Close()
		_ = tls.Client(there, client).HandshakeContext(t.Context()) // the server's error is the one that counts
		_, _ = there.Read(make([]byte, 64))
		return nil
	})
	err := tls.Server(here, server).HandshakeContext(t.Context())
	here.Close()
	_ = both.Wait() // nil
	return err
}

// clientsOf returns clients that look at their files each time.
func clientsOf(t *testing.T, options ClientOptions) *Clients {
	t.Helper()
	clients, err := LoadClients(options)
	if err != nil {
		t.Fatal(err)
	}
	clients.age = 0
	return clients
}

// A server with authorities for clients lets nobody in without a certificate of theirs, and goes by
// the authorities that the file has now.
func TestClientAuthorities(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	files, mine, strange := ours.Issue("server"), ours.Issue("client"), others.Issue("client")
	config, err := ServerTLS(files.Cert, files.Key, clientsOf(t, ClientOptions{CAFile: ours.File}), nil)
	if err != nil {
		t.Fatal(err)
	}
	insisting := ours.Client(strange) // a client of its own accord shows what the server asks for
	insisting.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &insisting.Certificates[0], nil }
	old := ours.Client(mine)
	old.MaxVersion = tls.VersionTLS11
	old.MinVersion = tls.VersionTLS10
	for name, test := range map[string]struct {
		client *tls.Config
		err    string // in the error; empty: none
	}{
		"a certificate of the authority": {ours.Client(mine), ""},
		"none":                           {ours.Client(), "didn't provide a certificate"},
		"one of another authority":       {insisting, "unknown authority"},
		"TLS 1.1":                        {old, "unsupported versions"},
	} {
		if err := shake(t, config, test.client); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", name, err, test.err)
		}
	}
}

// Without authorities no certificate is asked for; files that are not what they should be are errors.
func TestServerTLS(t *testing.T) {
	authority := certtest.New(t)
	files := authority.Issue("server")
	config, err := ServerTLS(files.Cert, files.Key, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := shake(t, config, authority.Client()); err != nil {
		t.Error(err)
	}
	if _, err := ServerTLS(files.Key, files.Key, nil, nil); err == nil {
		t.Error("a key in place of a certificate is no error")
	}
}
