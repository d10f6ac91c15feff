package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
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
	// Grants say what those may do who have no token of their own, as access.ParseGrant reads them.
	Grants List
}

// JWT are the settings of an identity provider; see access.ProviderOptions.
type JWT struct {
	Issuer, Audience, Keys string
	NameClaim, GrantClaim  string
}

// checkGrant checks a value of access.grants.
func checkGrant(text string) error {
	_, err := access.ParseGrant(text)
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

// Provider returns the identity provider of the settings; nil if there is none.
func (a *Access) Provider(log *slog.Logger) (*access.Provider, error) {
	if a.JWT.Issuer == "" {
		return nil, nil
	}
	options := access.ProviderOptions{
		Issuer: a.JWT.Issuer, Audience: a.JWT.Audience, Keys: a.JWT.Keys, NameClaim: a.JWT.NameClaim, GrantClaim: a.JWT.GrantClaim, Logger: log,
	}
	for _, text := range a.Grants {
		grant, err := access.ParseGrant(text)
		if err != nil {
			return nil, err
		}
		options.Grants = append(options.Grants, grant)
	}
	return access.NewProvider(options), nil
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
func (c *Config) AuditTopic() bool { return c.Audit.Topic && c.Topic.Kafka != Off }

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
	return c.validateJWT()
}

// validateJWT checks that the settings of an identity provider are complete.
func (c *Config) validateJWT() error {
	j := &c.Access.JWT
	switch {
	case j.Issuer == "" && (j.Audience != "" || j.Keys != "" || len(c.Access.Grants) > 0):
		return c.wrong("access.jwt_issuer", "want the issuer of JWTs: access.jwt_audience, access.jwt_keys and access.grants do nothing without it")
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
