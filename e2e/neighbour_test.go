package e2e

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Other users of the machine read nothing of the data, whatever the umask is, nor what
// an earlier release has written; and they are not told to find secrets.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	settings := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(settings, []byte("webhook:\n  secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "--config", settings)
	if err := os.Chmod(s.data, 0o755); err != nil {
		t.Fatal(err)
	}
	s.start()
	files := 0
	err := filepath.WalkDir(s.data, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it was removed in the meantime
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		files++
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files and directories, %v: too few to say anything", files, err)
	}
	s.terminate()
	if !strings.Contains(s.log.String(), "may read a file with secrets") || strings.Contains(s.log.String(), "MfKQ9r8G") {
		t.Errorf("the log does not warn of the settings that others can read:\n%s", &s.log)
	}
}

// A page that has its own name resolve to the server's address calls nothing.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--http-hosts", "sluice.internal")
	for host, status := range map[string]int{"evil.example": http.StatusMisdirectedRequest, "sluice.internal:8080": http.StatusOK, "localhost": http.StatusOK} {
		request, err := http.NewRequest(http.MethodGet, s.url("/v1/actions"), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("with host %s: %d, want %d", host, response.StatusCode, status)
		}
	}
}

// Bodies that are announced and not sent hold no connection, at the API and at the gate.
func TestBodiesThatAreNotSent(t *testing.T) {
	t.Parallel()
	s, front := newGate(t, shop(t).URL, "--capacity", "1")
	s.start()
	for _, address := range []string{s.addr, strings.TrimPrefix(front, "http://")} {
		for _, path := range []string{"/", "/v1/actions"} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
			if answer, err := io.ReadAll(conn); err != nil {
				t.Errorf("POST %s at %s: the connection does not end: %q, %v", path, address, answer, err)
			}
		}
	}
}
