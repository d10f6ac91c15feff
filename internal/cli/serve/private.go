package serve

import (
	"log/slog"
	"os"

	"github.com/sluice-project/sluice/config"
)

// keepPrivate makes what this process writes its user's alone, whatever the umask is,
// and warns of secrets that others can read. The data has keys and visitors' tickets.
func keepPrivate(settings *config.Config, log *slog.Logger) {
	maskOthers()
	// An earlier release wrote files there that are as open as the umask was.
	if err := os.Chmod(settings.DataDir, 0o700); err != nil && !os.IsNotExist(err) { //nolint:gosec // a directory
		log.Warn("other users of this machine may read the data", "data", settings.DataDir, "error", err)
	}
	for _, path := range settings.Exposed() {
		log.Warn("other users of this machine may read a file with secrets: chmod 600 it", "file", path)
	}
}
