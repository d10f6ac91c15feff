package serve

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/config"
)

// The admin token is read again with the settings; a file that is wrong changes nothing.
func TestAdminTokenIsReadAgain(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	file := filepath.Join(dir, "admin.token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (*config.Config, error) {
		return config.Load(nil, []string{"SLUICE_DATA=" + dir, "SLUICE_ACCESS_ADMIN_TOKEN_FILE=" + file})
	}
	first, second := strings.Repeat("first", 4), strings.Repeat("second", 4)
	write(first)
	settings, err := load()
	if err != nil {
		t.Fatal(err)
	}
	opened, err := openAccounts(t.Context(), settings, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	again := newSecrets(settings, load, log, opened.secrets)
	for _, test := range []struct{ written, known, unknown string }{{second, second, first}, {"short", second, "short"}, {first, first, second}} {
		write(test.written)
		if again.read(); !again.file.Changed() {
			t.Error("the file of the token is not watched")
		}
		if p, err := opened.known.Bearer(test.known); err != nil || p.Name != access.AdminName {
			t.Errorf("%s in the file: %s is %v, %v", test.written, test.known, p, err)
		}
		if _, err := opened.known.Bearer(test.unknown); !errors.Is(err, access.ErrUnknown) {
			t.Errorf("%s in the file: %s is known", test.written, test.unknown)
		}
	}
}
