package renew

import (
	"crypto/tls"
	"net"
	"os"
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

// A server with authorities for clients lets nobody in without a certificate of theirs, and goes by
// the authorities that the file has now.
func TestClientAuthorities(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	files, mine, strange := ours.Issue("server"), ours.Issue("client"), others.Issue("client")
	config, err := ServerTLS(files.Cert, files.Key, ours.File, nil)
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
	config, err := ServerTLS(files.Cert, files.Key, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := shake(t, config, authority.Client()); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][3]string{{files.Key, files.Key}, {files.Cert, files.Key, files.Key}, {files.Cert, files.Key, "none"}} {
		if _, err := ServerTLS(wrong[0], wrong[1], wrong[2], nil); err == nil {
			t.Errorf("%v: no error", wrong)
		}
	}
}

// The authorities are read again when their file has changed, and kept while it is wrong.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	first, second := certtest.New(t), certtest.New(t)
	path := first.File
	pool, err := authorities(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool.age = 0
	before := pool.newest()
	for _, step := range []struct {
		name, from string
		renewed    bool
	}{{"nothing in it", os.DevNull, false}, {"another authority", second.File, true}} {
		text, err := os.ReadFile(step.from)
		if err != nil {
			t.Fatal(err)
		}
		replace(t, path, text)
		if got := !pool.newest().Equal(before); got != step.renewed {
			t.Errorf("%s: renewed %t", step.name, got)
		}
	}
}
