package renew

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

const (
	// ClientAge is how long a change of the files of [Clients] may go unnoticed.
	ClientAge = 2 * time.Second
	// The most bytes of the files with authorities and with revocation lists.
	maxAuthorities, maxRevocations = 1 << 20, 16 << 20
)

// ClientOptions say which certificates of clients are good.
type ClientOptions struct {
	// CAFile is the path of the authorities, in PEM, at most 1 MiB.
	CAFile string
	// CRLFile is the path of their revocation lists, in PEM or one in DER, at most 16 MiB; "": none.
	CRLFile string
	// Optional accepts clients without a certificate. Default false.
	Optional bool
	// Logger gets what becomes of renewals. Default slog.Default().
	Logger *slog.Logger
}

// Clients knows which certificates of clients are good, by files that are read again when they change. It is safe for
// concurrent use.
type Clients struct {
	renewed[*clients]
	optional bool
}

// clients is what is in the files.
type clients struct {
	pool        *x509.CertPool
	authorities map[string]struct{} // their certificates
	revoked     map[string]struct{} // see serial
}

// LoadClients reads the files. Errors: one cannot be read or is too large, a revocation list is of none of the
// authorities, or has an extension that is critical, as lists of changes and indirect ones have.
func LoadClients(options ClientOptions) (*Clients, error) {
	paths := []string{options.CAFile}
	if options.CRLFile != "" {
		paths = append(paths, options.CRLFile)
	}
	c := &Clients{optional: options.Optional, renewed: renewed[*clients]{what: "authorities of clients", paths: paths, log: options.Logger}}
	c.read = func() (*clients, error) { return readClients(options, c.log) }
	err := c.load()
	c.age = ClientAge
	return c, err
}

func readClients(options ClientOptions, log *slog.Logger) (*clients, error) {
	text, err := readAtMost(options.CAFile, maxAuthorities)
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", options.CAFile, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no certificates in PEM", options.CAFile)
	}
	c := &clients{pool: x509.NewCertPool(), authorities: map[string]struct{}{}, revoked: map[string]struct{}{}}
	for _, one := range all {
		c.pool.AddCert(one)
		c.authorities[string(one.Raw)] = struct{}{}
	}
	if options.CRLFile == "" {
		return c, nil
	}
	if text, err = readAtMost(options.CRLFile, maxRevocations); err == nil {
		err = c.revoke(text, all, log)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.CRLFile, err)
	}
	return c, nil
}

// revoke reads the revocation lists of a file.
func (c *clients) revoke(text []byte, authorities []*x509.Certificate, log *slog.Logger) error {
	if block, _ := pem.Decode(text); block == nil {
		return c.revokeList(text, authorities, log)
	}
	found := false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			continue
		}
		found = true
		if err := c.revokeList(block.Bytes, authorities, log); err != nil {
			return err
		}
	}
	if !found {
		return errors.New("it has no X509 CRL in PEM")
	}
	return nil
}

func (c *clients) revokeList(der []byte, authorities []*x509.Certificate, log *slog.Logger) error {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	issuer := "the revocation list of " + list.Issuer.String()
	for _, extension := range list.Extensions {
		if extension.Critical {
			return fmt.Errorf("%s has the critical extension %s, which is not supported: want a whole list of an authority", issuer, extension.Id)
		}
	}
	signed := false
	for _, authority := range authorities {
		signed = signed || bytes.Equal(authority.RawSubject, list.RawIssuer) && list.CheckSignatureFrom(authority) == nil
	}
	if !signed {
		return fmt.Errorf("%s was signed by none of the authorities of clients", issuer)
	}
	if !list.NextUpdate.IsZero() && time.Now().After(list.NextUpdate) {
		log.Warn(issuer+" is out of date: what it revokes is refused, and what was revoked since is not", "next_update", list.NextUpdate)
	}
	for i := range list.RevokedCertificateEntries {
		c.revoked[serial(list.RawIssuer, list.RevokedCertificateEntries[i].SerialNumber.Bytes())] = struct{}{}
	}
	return nil
}

// serial names a certificate of an issuer.
func serial(issuer, number []byte) string { return string(number) + "/" + string(issuer) }

// Errors of certificates.
var (
	errNotSigned = errors.New("no authority of clients has signed the certificate of the client, or not any more")
	errRevoked   = errors.New("the certificate of the client was revoked")
	errEnded     = errors.New("the certificate of the client has expired")
)

// Check returns why the certificate of a connection is not good, or not any more; nil if it is, or there is none. It
// verifies no signature: the handshake did.
func (c *Clients) Check(of *tls.ConnectionState) error {
	if len(of.PeerCertificates) == 0 {
		return nil
	}
	now, files, why := time.Now(), c.newest(), errNotSigned
	for _, chain := range of.VerifiedChains {
		if why = files.check(chain, now); why == nil {
			return nil
		}
	}
	return why
}

func (c *clients) check(chain []*x509.Certificate, now time.Time) error {
	if _, known := c.authorities[string(chain[len(chain)-1].Raw)]; !known {
		return errNotSigned
	}
	for _, one := range chain {
		if _, revoked := c.revoked[serial(one.RawIssuer, one.SerialNumber.Bytes())]; revoked {
			return errRevoked
		}
		if now.After(one.NotAfter) {
			return errEnded
		}
	}
	return nil
}

// readAtMost reads a file that has a bound.
func readAtMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}
