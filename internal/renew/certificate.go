package renew

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"
)

// Age is how long a change of files may go unnoticed: they are looked at no more often.
const Age = 5 * time.Second

// Certificate is a TLS certificate in two files, which is renewed while it is used:
// handshakes get the new one at most [Age] after both files were replaced. It is safe for
// concurrent use.
type Certificate struct {
	certFile, keyFile string
	age               time.Duration
	log               *slog.Logger

	mu      sync.Mutex
	files   *Files
	served  *tls.Certificate
	looked  time.Time
	failing bool
}

// LoadCertificate reads a certificate and its key, in PEM. Renewals are logged, and errors
// of renewals; a nil log is slog.Default().
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	if log == nil {
		log = slog.Default()
	}
	c := &Certificate{
		certFile: certFile, keyFile: keyFile, age: Age, log: log,
		files: NewFiles(certFile, keyFile), looked: time.Now(),
	}
	return c, c.read()
}

// Get returns the certificate, for tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.newest(), nil }

// GetClient returns the certificate, for tls.Config.GetClientCertificate.
func (c *Certificate) GetClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.newest(), nil
}

// newest looks whether the files have changed. It goes on with the certificate that it has
// if the new pair cannot be read: the files are replaced one after the other.
func (c *Certificate) newest() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < c.age {
		return c.served
	}
	c.looked = now
	if !c.files.Changed() {
		return c.served
	}
	if err := c.read(); err != nil {
		if !c.failing { // once, however often the files change until they are right
			c.log.Error("the new TLS certificate cannot be read, and the old one is still used", "file", c.certFile, "key", c.keyFile, "error", err)
		}
		c.failing = true
		return c.served
	}
	c.failing = false
	c.log.Info("the TLS certificate was renewed", "file", c.certFile, "expires", c.served.Leaf.NotAfter)
	return c.served
}

func (c *Certificate) read() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.served = &pair
	}
	return err
}
