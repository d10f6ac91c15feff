package trust

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
)

// TokenVariable has the token to show, unless a flag names its file.
const TokenVariable = "SLUICE_TOKEN"

// maxToken is the largest file that a token is read from.
const maxToken = 4 << 10

// Token returns the token that a command shows, "" for none. It has no flag of its own: other users of a machine may
// see command lines.
func Token(of profile.Connection) (string, error) {
	file := of[profile.TokenFile]
	if file == "" {
		return strings.TrimSpace(os.Getenv(TokenVariable)), nil
	}
	token, err := readToken(file)
	if err != nil {
		return "", exit.Usage("--token-file: %w", err)
	}
	return token, nil
}

func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxToken || token == "" || strings.ContainsAny(token, " \t\r\n"):
		return "", fmt.Errorf("%s: want a file with one token", path)
	}
	return token, nil
}
