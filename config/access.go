package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/sluice-project/sluice/access"
)

// Access are the settings of accounts.
type Access struct {
	// AdminToken is the token that may do everything; AdminTokenFile has it instead. Without one, the server has no
	// accounts.
	AdminToken     Secret
	AdminTokenFile string
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
	return nil
}
