package config

import "fmt"

// Access are the settings of accounts.
type Access struct {
	// AdminToken is the token that may do everything; AdminTokenFile has it instead. Without one, the server has no
	// accounts.
	AdminToken     Secret
	AdminTokenFile string
}

// adminLeast is the least length of the admin token.
const adminLeast = 20

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
	case a.On() && len(token) < adminLeast:
		return c.wrong(key, fmt.Sprintf("it has %d characters: want at least %d; \"openssl rand -hex 32\" makes one", len(token), adminLeast))
	}
	return nil
}
