package redistest_test

import (
	"net"
	"testing"
	"time"

	"github.com/sluice-project/sluice/redistest"
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
