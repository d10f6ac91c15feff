package ops

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateAge is how often the files of a certificate are looked at, at most.
const certificateAge = 5 * time.Second

// Certificate is a TLS certificate in two files, which is renewed while it is served:
// handshakes get the new one at most 5 s after both files were replaced. It is safe for
// concurrent use.
type Certificate struct {
	files [2]string // of the certificate and its key
	age   time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	served  *tls.Certificate
	looked  time.Time
	tried   [2]os.FileInfo // the files as they were when they were read last; nil: missing
	failing bool
}

// LoadCertificate reads a certificate and its key, in PEM. Renewals are logged, and errors
// of renewals; a nil log is slog.Default().
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	if log == nil {
		log = slog.Default()
	}
	c := &Certificate{files: [2]string{certFile, keyFile}, age: certificateAge, log: log, looked: time.Now()}
	c.tried = c.look()
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// Get returns the certificate, for tls.Config.GetCertificate. It looks whether the files
// have changed, and goes on with the certificate that it has if the new pair cannot be
// read: the files are replaced one after the other.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < c.age {
		return c.served, nil
	}
	c.looked = now
	found := c.look()
	if same(found[0], c.tried[0]) && same(found[1], c.tried[1]) {
		return c.served, nil
	}
	c.tried = found
	if err := c.read(); err != nil {
		if !c.failing { // once, however often the files change until they are right
			c.log.Error("the new TLS certificate cannot be read, and the old one is still served", "file", c.files[0], "key", c.files[1], "error", err)
		}
		c.failing = true
		return c.served, nil
	}
	c.failing = false
	c.log.Info("the TLS certificate was renewed", "file", c.files[0], "expires", c.served.Leaf.NotAfter)
	return c.served, nil
}

// look returns the files as they are.
func (c *Certificate) look() (found [2]os.FileInfo) {
	for i, path := range c.files {
		if info, err := os.Stat(path); err == nil {
			found[i] = info
		}
	}
	return found
}

// same reports whether a file is the one that it was. Renewals write it again, replace it, or
// change where a link leads.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (c *Certificate) read() error {
	pair, err := tls.LoadX509KeyPair(c.files[0], c.files[1])
	if err == nil {
		c.served = &pair
	}
	return err
}
