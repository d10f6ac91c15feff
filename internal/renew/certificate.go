package renew

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Age is how long a change of files may go unnoticed: they are looked at no more often.
const Age = 3 * time.Second

// renewed is a value that is read from files, and read again when they have changed.
type renewed[T any] struct {
	what  string
	paths []string
	read  func() (T, error)
	age   time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	files   *Files
	value   T
	looked  time.Time
	failing bool
}

// load reads the value for the first time.
func (r *renewed[T]) load() (err error) {
	r.age, r.files, r.looked = Age, NewFiles(r.paths...), time.Now()
	if r.log == nil {
		r.log = slog.Default()
	}
	r.value, err = r.read()
	return err
}

// newest looks whether the files have changed. It goes on with the value that it has if the new
// one cannot be read: files are replaced one after the other.
func (r *renewed[T]) newest() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.looked) < r.age {
		return r.value
	}
	r.looked = now
	if !r.files.Changed() {
		return r.value
	}
	value, err := r.read()
	if err != nil {
		if !r.failing { // once, however often the files change until they are right
			r.log.Error("the new "+r.what+" cannot be read, and the old one is still used", "files", r.paths, "error", err)
		}
		r.failing = true
		return r.value
	}
	r.value, r.failing = value, false
	r.log.Info("the "+r.what+" was renewed", "files", r.paths)
	return r.value
}

// Certificate is a TLS certificate in two files, which is renewed while it is used:
// handshakes get the new one at most [Age] after both files were replaced. It is safe for
// concurrent use.
type Certificate struct{ renewed[*tls.Certificate] }

// LoadCertificate reads a certificate and its key, in PEM. Renewals are logged, and errors
// of renewals; a nil log is slog.Default().
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{renewed[*tls.Certificate]{
		what: "TLS certificate", paths: []string{certFile, keyFile}, log: log,
		read: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		},
	}}
	return c, c.load()
}

// Get returns the certificate, for tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.newest(), nil }

// GetClient returns the certificate, for tls.Config.GetClientCertificate.
func (c *Certificate) GetClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.newest(), nil
}

// notice is how long before its end a certificate is complained of; one that lives for less than 140 days is in the last tenth of its life.
const notice = 14 * 24 * time.Hour

// Expiring returns an error if the certificate of a server ends within 14 days, or a tenth of its life if that is less: whoever renews it has
// not done so. The certificate is that of tls.Config.GetCertificate, as ServerTLS and [Certificate.Get] have it.
func Expiring(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	shown, err := get(nil)
	if err != nil {
		return err
	}
	leaf := shown.Leaf
	left := time.Until(leaf.NotAfter)
	if left > min(notice, leaf.NotAfter.Sub(leaf.NotBefore)/10) {
		return nil
	}
	ends := "ends"
	if left < 0 {
		ends = "ended"
	}
	return fmt.Errorf("the certificate %q %s at %s: replace its files, which are read again", leaf.Subject.CommonName, ends, leaf.NotAfter.UTC().Format(time.DateTime+" UTC"))
}

// Authorities reads the certificates of a file, in PEM.
func Authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificates in PEM", path)
	}
	return pool, nil
}

// ServerTLS returns the configuration of a server with the certificate of two files, for TLS 1.2
// and later. With clients, those must show a certificate that is good, or may; nil: they are asked
// for none. Handshakes get what is in the files at most [Age] after they changed; a nil log is
// slog.Default().
func ServerTLS(certFile, keyFile string, clients *Clients, log *slog.Logger) (*tls.Config, error) {
	certificate, err := LoadCertificate(certFile, keyFile, log)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12}
	if clients == nil {
		return config, nil
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if clients.optional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	config.SessionTicketsDisabled = true // a resumed session would not show its certificate again
	config.VerifyConnection = func(state tls.ConnectionState) error { return clients.Check(&state) }
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.ClientCAs = clients.newest().pool
		return now, nil
	}
	return config, nil
}
