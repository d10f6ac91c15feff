//go:build redis

package redistest_test

import (
	"bufio"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

func TestDataSurvivesAKillWhenEachCommandIsSynced(t *testing.T) {
	for persist, want := range map[redistest.Persist]string{redistest.Nothing: "", redistest.Always: "there"} {
		server := redistest.Start(t, redistest.Options{Persist: persist})
		server.Cli("SET", "key", "there")
		address := server.URL()
		server.Restart()
		if got := server.Cli("GET", "key"); got != want {
			t.Errorf("persist %q: %q after a restart, want %q", persist, got, want)
		}
		if server.URL() != address {
			t.Errorf("at %s after a restart, want %s", server.URL(), address)
		}
	}
}

func TestArgsReachTheServer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory", "10mb"}})
	if got := server.Cli("CONFIG", "GET", "maxmemory"); got != "maxmemory\n10485760" {
		t.Errorf("CONFIG GET says %q", got)
	}
}

func TestAKilledServerRefusesConnections(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	server.Kill()
	if connection, err := net.Dial("tcp", server.Addr()); err == nil {
		connection.Close()
		t.Error("a connection after Kill")
	}
	server.Restart()
	if got := server.Cli("PING"); got != "PONG" {
		t.Errorf("PING: %q", got)
	}
}

func TestAPausedServerAnswersOnceItContinues(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	server.Pause()
	connection, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 7)
	if err := connection.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(answer); err == nil {
		t.Fatalf("a paused server answers %q", answer[:n])
	}
	server.Continue()
	if err := connection.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(answer); err != nil || string(answer[:n]) != "+PONG\r\n" {
		t.Errorf("%q, %v after Continue", answer[:n], err)
	}
}

func TestAnAccountIsTheOnlyOne(t *testing.T) {
	server := redistest.Start(t, redistest.Options{User: "me", Password: "a/b@c", Socket: true})
	if got := server.Cli("ACL", "WHOAMI"); got != "me" {
		t.Errorf("it is %q", got)
	}
	for _, text := range []string{server.URL(), server.SocketURL()} {
		parsed, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if password, _ := parsed.User.Password(); parsed.User.Username() != "me" || password != "a/b@c" {
			t.Errorf("%s has the account %q", text, parsed.User)
		}
	}
	if answer := say(t, "tcp", server.Addr(), "PING"); !strings.HasPrefix(answer, "-NOAUTH") {
		t.Errorf("without the account, PING is answered with %q", answer)
	}
	server.Restart()
	if got := server.Cli("ACL", "WHOAMI"); got != "me" {
		t.Errorf("after a restart it is %q", got)
	}
}

func TestASocketIsTheSameServer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Socket: true})
	path, found := strings.CutPrefix(server.SocketURL(), "unix://")
	if !found {
		t.Fatalf("%s is no socket", server.SocketURL())
	}
	if answer := say(t, "unix", path, "SET key there"); answer != "+OK\r\n" {
		t.Errorf("through the socket, SET is answered with %q", answer)
	}
	if got := server.Cli("GET", "key"); got != "there" {
		t.Errorf("through the port: %q", got)
	}
}

func TestTLSOnly(t *testing.T) {
	server := redistest.Start(t, redistest.Options{TLS: true, User: "me", Password: "secret", Persist: redistest.Always})
	if !strings.HasPrefix(server.URL(), "rediss://me:secret@127.0.0.1:") {
		t.Errorf("it is at %s", server.URL())
	}
	server.Cli("SET", "key", "there")
	server.Restart()
	if got := server.Cli("GET", "key"); got != "there" {
		t.Errorf("%q after a restart", got)
	}
	if answer := say(t, "tcp", server.Addr(), "PING"); strings.HasPrefix(answer, "+") {
		t.Errorf("without TLS, PING is answered with %q", answer)
	}
}

func TestWhatAServerCounts(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	server.Cli("SET", "a", "1")
	server.Cli("SET", "b", "2")
	if calls, never := server.Calls("SET"), server.Calls("evalsha"); calls != 2 || never != 0 {
		t.Errorf("SET was called %d times, EVALSHA %d", calls, never)
	}
	if size := server.Size(); size != 2 {
		t.Errorf("it has %d keys", size)
	}
	if role := server.Info("role"); role != "master" {
		t.Errorf("its role is %q", role)
	}
}

// say sends one line in plain text, and returns the first line of the answer; "" if there is none.
func say(t *testing.T, network, address, line string) string {
	t.Helper()
	connection, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write([]byte(line + "\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, _ := bufio.NewReader(connection).ReadString('\n') // a server of TLS hangs up
	return answer
}
