package proxytest

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// proxy is a proxy that runs here.
type proxy struct {
	files []string
	// command runs it with the first file, in a folder of its own.
	command func(folder string) []string
}

var proxies = map[string]proxy{
	"nginx": {[]string{"nginx.conf"}, func(folder string) []string {
		return []string{"nginx", "-p", folder, "-c", "main.conf", "-g", "daemon off;"}
	}},
	"haproxy": {[]string{"haproxy.cfg", "sluice.lua"}, func(folder string) []string {
		return []string{"haproxy", "-C", folder, "-f", filepath.Join(folder, "haproxy.cfg")}
	}},
	"caddy": {[]string{"Caddyfile"}, func(folder string) []string {
		return []string{"caddy", "run", "--config", filepath.Join(folder, "Caddyfile")}
	}},
}

// MainOfNginx is a configuration of nginx that includes nginx.conf of its folder.
const MainOfNginx = `error_log stderr;
pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include nginx.conf;
}
`

// Start runs nginx, haproxy or caddy in front of a site and of a gate, both host:port, until the test ends,
// and returns its URL.
func Start(t testing.TB, name, site, gate string) string {
	t.Helper()
	listen := ports.Addrs(t, 1)[0]
	_, port, _ := strings.Cut(listen, ":")
	addresses := strings.NewReplacer(
		"127.0.0.1:3000", site, "127.0.0.1:8000", gate,
		"listen 80", "listen "+listen, "bind :80", "bind "+listen,
		"http://shop.example.com {", "{\nadmin off\n}\nhttp://127.0.0.1:"+port+" {\nbind 127.0.0.1\n",
	)
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sluice-project/sluice").Output()
	if err != nil {
		t.Fatal("where the source is: ", err)
	}
	examples := filepath.Join(strings.TrimSpace(string(root)), "examples/proxies")
	folder := t.TempDir()
	for _, file := range proxies[name].files {
		text, err := os.ReadFile(filepath.Join(examples, file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, file), addresses.Replace(string(text)))
	}
	write(t, filepath.Join(folder, "main.conf"), MainOfNginx)
	return Run(t, listen, proxies[name].command(folder)...)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Run runs a program until the test ends, and returns its URL when it answers at an address.
func Run(t testing.TB, listen string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...) // the cleanup ends it
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		t.Fatalf("%v: run make need-proxies", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s says:\n%s", args[0], text[max(0, len(text)-4000):])
		}
	})
	front := "http://" + listen
	until.True(t, args[0]+" answers", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front+"/.sluice/sluice.js", http.NoBody) // takes no place
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
	return front
}
