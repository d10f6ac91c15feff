package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/sluice-project/sluice/access"
)

// Access are the settings of accounts.
type Access struct {
	// AdminToken is the token that may do everything; AdminTokenFile has it instead. Without one, the server has no
	// accounts.
	AdminToken     Secret
	AdminTokenFile string
	// JWT are the settings of an identity provider.
	JWT JWT
	// CertNameRules make names of certificates, as access.ParseCertNames reads them.
	CertNameRules string
	// Grants say what those may do who have no token of their own, as access.ParseGrant reads them.
	Grants List
	// RequestsPerSecond is how many requests an account may send to http in a second; 0: any number.
	RequestsPerSecond int
}

// JWT are the settings of an identity provider; see access.ProviderOptions. Keys is the URL or the file of its keys.
type JWT struct {
	Issuer, Audience, Keys string
	NameClaim, GrantClaim  string
}

// checkGrant checks a value of access.grants.
func checkGrant(text string) error {
	_, err := access.ParseGrant(text)
	return err
}

// checkNameRules checks access.cert_name_rules.
func checkNameRules(text string) error {
	_, err := access.ParseCertNames(text)
	return err
}

// checkKeys checks where keys are: a URL or a file. Its text is checked when it is read.
func checkKeys(text string) error {
	if !strings.HasPrefix(text, "http:") && !strings.HasPrefix(text, "https:") {
		return checkFile(text)
	}
	address, err := url.Parse(text)
	if err != nil || address.Hostname() == "" || address.User != nil || address.Scheme == "http" && !loopback(net.JoinHostPort(address.Hostname(), "0")) {
		return errors.New("want an https URL, or http on this machine, such as https://login.example.com/keys, or the path of a file")
	}
	return nil
}

// ParsedGrants returns the grants, which were checked.
func (a *Access) ParsedGrants() ([]access.Grant, error) {
	all := make([]access.Grant, len(a.Grants))
	for i, text := range a.Grants {
		var err error
		if all[i], err = access.ParseGrant(text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Audit are the settings of the trail.
type Audit struct {
	// File is auditAuto, Off or a path; see Config.AuditFile.
	File string
	// MaxBytes bounds the file, and Keep is how many more hold what it had before.
	MaxBytes int64
	Keep     int
	// Topic publishes the trail too.
	Topic bool
}

// auditAuto, as audit.file, is a file in the data directory if the server has accounts.
const auditAuto = "auto"

// AuditFile returns the path of the trail's file; "": there is none.
func (c *Config) AuditFile() string {
	switch {
	case c.Audit.File == auditAuto && c.Access.On():
		return filepath.Join(c.DataDir, "audit.log")
	case c.Audit.File == auditAuto || c.Audit.File == Off:
		return ""
	}
	return c.Audit.File
}

// Audited reports whether the server has a trail: with accounts, unless it has neither a file nor a topic, and otherwise
// if a file is named.
func (c *Config) Audited() bool {
	return c.AuditFile() != "" || c.Access.On() && c.AuditTopic()
}

// AuditTopic reports whether a trail is published.
func (c *Config) AuditTopic() bool { return c.Audit.Topic && c.Topic.On() }

// Hash returns the SHA-256 of the settings, without secrets.
func (c *Config) Hash() (string, error) {
	sum := sha256.New()
	if err := c.WriteYAML(sum); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// On reports whether the server has accounts.
func (a *Access) On() bool { return a.AdminToken != "" || a.AdminTokenFile != "" }

// Token returns the admin token, from its file if there is one. Its errors do not show it.
func (a *Access) Token() (string, error) { return readSecret(a.AdminToken, a.AdminTokenFile) }

// validateAccess checks the admin token, without showing it.
func (c *Config) validateAccess() error {
	a := &c.Access
	key := "access.admin_token"
	if a.AdminTokenFile != "" {
		if a.AdminToken != "" {
			return c.wrong(key, "want this or access.admin_token_file, not both")
		}
		key = "access.admin_token_file"
	}
	if err := a.AdminToken.Validate(); err != nil {
		return c.wrong(key, err.Error())
	}
	switch token, err := a.Token(); {
	case err != nil:
		return c.wrong(key, err.Error())
	case a.On() && len(token) < access.LeastAdmin:
		return c.wrong(key, fmt.Sprintf("it has %d characters: want at least %d; \"openssl rand -hex 32\" makes one", len(token), access.LeastAdmin))
	}
	if a.RequestsPerSecond > 0 && !a.On() {
		return c.wrong("access.requests_per_second", "it needs accounts: want access.admin_token or access.admin_token_file too")
	}
	switch {
	case a.CertNameRules != "" && (c.TLS.ClientCAFile == "" || !a.On()):
		return c.wrong("access.cert_name_rules", "want tls.client_ca_file, and access.admin_token or access.admin_token_file: it does nothing without them")
	case len(a.Grants) > 0 && !a.On():
		return c.wrong("access.grants", "they need accounts: want access.admin_token or access.admin_token_file too")
	}
	return c.validateJWT()
}

// validateJWT checks that the settings of an identity provider are complete.
func (c *Config) validateJWT() error {
	j := &c.Access.JWT
	switch {
	case j.Issuer == "" && (j.Audience != "" || j.Keys != ""):
		return c.wrong("access.jwt_issuer", "want the issuer of JWTs: access.jwt_audience and access.jwt_keys do nothing without it")
	case j.Issuer == "":
		return nil
	case !c.Access.On():
		return c.wrong("access.jwt_issuer", "it needs accounts: want access.admin_token or access.admin_token_file too")
	case j.Audience == "":
		return c.wrong("access.jwt_audience", "want the audience of JWTs: without it, JWTs that are meant for other services would be accepted")
	case j.Keys == "":
		return c.wrong("access.jwt_keys", "want the URL or the file of the identity provider's keys")
	case j.NameClaim == "" || j.GrantClaim == "":
		return c.wrong("access.jwt_name_claim", "want the names of two claims, such as sub here and roles as access.jwt_grant_claim")
	}
	return nil
}
