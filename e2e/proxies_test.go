//go:build proxies

package e2e

import (
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

// proxies are the proxies of examples/proxies that run here. Their files are used as they are,
// with other addresses.
var proxies = []struct {
	name  string
	files []string
	// command runs the proxy with the first file, in a folder of its own.
	command func(folder string) []string
}{
	{"nginx", []string{"nginx.conf"}, func(folder string) []string {
		return []string{"nginx", "-p", folder, "-c", "main.conf", "-g", "daemon off;"}
	}},
	{"haproxy", []string{"haproxy.cfg", "sluice.lua"}, func(folder string) []string {
		return []string{"haproxy", "-C", folder, "-f", filepath.Join(folder, "haproxy.cfg")}
	}},
	{"caddy", []string{"Caddyfile"}, func(folder string) []string {
		return []string{"caddy", "run", "--config", filepath.Join(folder, "Caddyfile")}
	}},
}

// mainOfNginx is what examples/proxies/nginx.conf is included into.
const mainOfNginx = `error_log stderr;
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

// startProxy starts a proxy in front of a shop and of a gate, and returns its URL.
func startProxy(t *testing.T, name, upstream, gate string) string {
	t.Helper()
	listen := ports.Addrs(t, 1)[0]
	_, port, _ := strings.Cut(listen, ":")
	addresses := strings.NewReplacer(
		"127.0.0.1:3000", strings.TrimPrefix(upstream, "http://"), "127.0.0.1:8000", gate,
		"listen 80", "listen "+listen, "bind :80", "bind "+listen,
		"http://shop.example.com {", "{\nadmin off\n}\nhttp://127.0.0.1:"+port+" {\nbind 127.0.0.1\n",
	)
	folder := t.TempDir()
	for _, proxy := range proxies {
		if proxy.name != name {
			continue
		}
		for _, file := range proxy.files {
			text, err := os.ReadFile(filepath.Join("../examples/proxies", file))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(folder, file), addresses.Replace(string(text)))
		}
		writeFile(t, filepath.Join(folder, "main.conf"), mainOfNginx)
		args := proxy.command(folder)
		command := exec.Command(args[0], args[1:]...)
		command.Env = append(os.Environ(), "HOME="+folder)
		log, err := os.Create(filepath.Join(folder, "log"))
		if err != nil {
			t.Fatal(err)
		}
		command.Stdout, command.Stderr = log, log
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Signal(syscall.SIGTERM)
			_ = command.Wait()
			_ = log.Close()
			if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("%s says:\n%s", name, tail(text, 4000))
			}
		})
	}
	front := "http://" + listen
	until.True(t, name+" answers", func() bool {
		response, err := http.Get(front + "/.sluice/check")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusNotFound // it is the proxy's own
	})
	return front
}

// post sends a form from a page of the shop.
func (p *person) post(path, form string) answer {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.front+path, strings.NewReader(form))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "text/html")
	return p.do(request)
}

// A proxy that asks the gate gives visitors what a gate in its place would: they join, wait, enter,
// expire, leave and are revoked.
func TestProxies(t *testing.T) {
	t.Parallel()
	for _, proxy := range proxies {
		t.Run(proxy.name, func(t *testing.T) {
			t.Parallel()
			upstream := shop(t).URL
			s, gate := newGate(t, upstream, "--trusted-proxies", "127.0.0.1", "--capacity", "1", "--pass-ttl", "15s", "--bypass", "/about")
			s.start()
			front := startProxy(t, proxy.name, upstream, strings.TrimPrefix(gate, "http://"))
			first, second, third := newPerson(t, front), newPerson(t, front), newPerson(t, front)
			if !first.inShop("/") || !first.inShop("/cart?a=1") {
				t.Fatalf("the first visitor sees %s", first.get("/", "text/html").body)
			}
			page := second.get("/cart?a=1", "text/html")
			if !strings.Contains(string(page.body), `data-kind="waiting"`) || page.header.Get("Retry-After") == "" ||
				page.header.Get("Cache-Control") != "no-store" || !strings.Contains(string(page.body), `value="/cart?a=1"`) {
				t.Fatalf("the second visitor sees %d %v %s", page.status, page.header, page.body)
			}
			if v := s.room("shop"); v.Inside != 1 || v.Waiting != 1 {
				t.Errorf("with one inside and one in line, the room is %+v", v)
			}
			if a := second.get("/.sluice/shop/status", "application/json"); a.status != http.StatusOK || !strings.Contains(string(a.body), `"position":1`) {
				t.Errorf("the place is %d %s", a.status, a.body)
			}
			forged, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front+"/about", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			forged.Header.Set("Sluice-Pass", "forged")
			if a := third.do(forged); string(a.body) != "the shop has /about, with a pass: false" {
				t.Errorf("what needs no pass: %d %s", a.status, a.body)
			}
			until.True(t, "the second visitor gets in when the first is silent", func() bool { return second.inShop("/") })
			third.get("/", "text/html")
			if a := second.post("/.sluice/shop/leave", "to=/"); a.status != http.StatusOK || !strings.Contains(string(a.body), `data-kind="left"`) {
				t.Errorf("leaving: %d %s", a.status, a.body)
			}
			until.True(t, "the third visitor gets in when the second has left", func() bool { return third.inShop("/") })
			if a := third.post("/order", "item=1"); string(a.body) != "the shop has /order, with a pass: true, and item=1" {
				t.Errorf("a form: %d %s", a.status, a.body)
			}
			if output, code := run(t, "room", "revoke", "shop", "--server", "http://"+s.addr); code != 0 {
				t.Fatal(output)
			}
			until.True(t, "the third visitor is out when revoked", func() bool {
				return strings.Contains(string(third.get("/", "text/html").body), `data-kind="gone"`)
			})
		})
	}
}
