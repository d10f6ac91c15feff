package serve

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/config"
)

// Settings that are wrong, as they are while somebody edits them, change no part's secrets.
func TestWrongSettingsChangeNoSecrets(t *testing.T) {
	var log strings.Builder
	replaced, wrong := 0, errors.New("webhook.secrets: want base64")
	s := newSecrets(config.Default(), func() (*config.Config, error) { return config.Default(), wrong },
		slog.New(slog.NewTextHandler(&log, nil)), nil, func(*config.Config) error { replaced++; return nil })
	s.read()
	if replaced != 0 || !strings.Contains(log.String(), wrong.Error()) {
		t.Errorf("replaced %d times; log %q, want the error", replaced, log.String())
	}
	wrong = nil
	s.read()
	if replaced != 1 {
		t.Errorf("replaced %d times, want once when they are right", replaced)
	}
}
