package config

import (
	"fmt"

	"github.com/sluice-project/sluice/access"
)

// Access are the settings of accounts.
type Access struct {
	// AdminToken is the token that may do everything; AdminTokenFile has it instead. Without one, the server has no
	// accounts.
	AdminToken     Secret
	AdminTokenFile string
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
