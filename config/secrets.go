package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Secrets are several for one purpose, such as the current one and those it replaces.
// However they are printed, only their number is shown.
type Secrets []string

// hiddenSecret stands for each secret where a config is printed.
const hiddenSecret = "(hidden)"

// ParseSecrets reads secrets that are separated by commas. It does not check them.
func ParseSecrets(text string) Secrets {
	secrets := strings.Split(text, ",")
	for i := range secrets {
		secrets[i] = strings.TrimSpace(secrets[i])
	}
	return secrets
}

// Validate refuses the mark that is printed in place of a secret, and what check refuses,
// which must not show secrets.
func (s Secrets) Validate(check func([]string) error) error {
	for _, secret := range s {
		if err := Secret(secret).Validate(); err != nil {
			return err
		}
	}
	return check(s)
}

func (s Secrets) String() string {
	if len(s) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d hidden", len(s))
}

// GoString implements fmt.GoStringer.
func (s Secrets) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler, for logs in JSON.
func (s Secrets) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secret is one secret. However it is printed, only its presence is shown.
type Secret string

// Validate refuses the mark that is printed in place of a secret.
func (s Secret) Validate() error {
	if s == hiddenSecret {
		return errors.New(hiddenSecret + ` is what "sluice config" prints in place of a secret: put the secret there`)
	}
	return nil
}

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hiddenSecret
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// secretMost is the largest file that a secret is read from.
const secretMost = 4 << 10

// readSecret returns a secret, from its file if there is one. Its errors do not show it.
func readSecret(secret Secret, path string) (string, error) {
	if path == "" {
		return string(secret), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("want the path of a file: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, secretMost+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > secretMost:
		return "", fmt.Errorf("%s: larger than %d bytes", path, secretMost)
	}
	return strings.TrimSpace(string(text)), nil
}

// MarshalText implements encoding.TextMarshaler, for logs in JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
