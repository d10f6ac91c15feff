package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// The error for a command that is not installed names the command that installs it.
func TestFindSaysHowToInstall(t *testing.T) {
	_, err := find("no-such-server", t.TempDir(), "some-package")
	if want := "no-such-server is not installed; on Debian, as root: apt-get install --yes some-package"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

// A server that ends at once is an error with its output.
func TestStartReportsAServerThatEnds(t *testing.T) {
	self, err := serverAccount("postgres")
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) error { return errors.New("no answer") }
	_, err = start(t.Context(), self, "/", never, "/bin/sh", "-c", "echo wrong setting; exit 3")
	if err == nil || !strings.Contains(err.Error(), "wrong setting") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v, want what it printed and its status", err)
	}
}
