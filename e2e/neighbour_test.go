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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
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
	var conns []net.Conn
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
			conns = append(conns, conn)
		}
	}
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if answer, err := io.ReadAll(conn); err != nil {
			t.Errorf("the connection to %s does not end: %q, %v", conn.RemoteAddr(), answer, err)
		}
	}
}

// Where the process may open few files, too many clients take none from the stores: these go on
// while the clients stay, nothing acknowledged is lost, and others are served when they have left.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.files = 1024
	s.start()
	f := franz{s}
	admin := f.create(t, "before", 1)
	producer := f.client(t)
	f.send(t, numbered("before", 0, 0, 10))
	s.call("POST", "/v1/actions", `{"id":"before","tenant":"a","type":"t"}`, http.StatusCreated, nil)

	var crowd []net.Conn
	leave := func() {
		for _, conn := range crowd {
			_ = conn.Close()
		}
	}
	defer leave()
	for i := range 3000 {
		conn, err := net.Dial("tcp", []string{s.addr, s.kafka}[i%2])
		if err != nil { // the process accepts no more
			break
		}
		crowd = append(crowd, conn)
		_, _ = io.WriteString(conn, "POST /v1/actions HTTP/1.1\r\n")
	}
	// Each partition has files of its own.
	if _, err := admin.CreateTopics(t.Context(), 40, 1, nil, "beside"); err != nil {
		t.Fatal(err)
	}
	for partition := range int32(40) {
		if err := producer.ProduceSync(t.Context(), numbered("beside", partition, 0, 10)...).FirstErr(); err != nil {
			t.Fatalf("partition %d beside %d connections: %v", partition, len(crowd), err)
		}
	}
	leave()
	until.True(t, "others are served again", func() bool {
		answer, err := s.do("POST", "/v1/actions", "application/json", []byte(`{"id":"after","tenant":"a","type":"t"}`))
		return err == nil && answer.status < 300
	})
	s.kill()
	s.start()
	s.action("before")
	s.action("after")
	reader := f.client(t, kgo.ConsumeTopics("before", "beside"))
	if got := poll(t, reader, 410); len(got) != 410 {
		t.Errorf("%d records, want 410", len(got))
	}
	s.kill() // only then is its log complete
	if strings.Contains(s.log.String(), "too many open files") {
		t.Error("the process ran out of files")
	}
}
