//go:build long && linux

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/ports"
)

// checkInstall installs a package on a machine that has nothing else, serves, upgrades and removes
// it: the data and changed settings stay.
func checkInstall(t *testing.T, deb string) {
	m := newDebian(t)
	m.install(deb)
	m.wantCalls("daemon-reload", "try-restart sluice.service")
	checkUnit(t, m)

	free := ports.Addrs(t, 2)
	settings := m.read("etc/sluice/sluice.yaml") + "\nhttp: " + free[0] + "\nkafka: " + free[1] + "\n"
	overwrite(t, m.path("etc/sluice/sluice.yaml"), settings)
	server := launch(t, free[0], m.service())
	server.awaitReady()
	m.run("sluice", "doctor", "--server", "http://"+free[0], "--brokers", free[1])
	m.run("sluice", "topic", "create", "orders", "--brokers", free[1])
	m.run("/bin/sh", "-c", "echo kept | sluice topic produce orders --brokers "+free[1])
	m.run("sluice", "room", "create", "shop", "--capacity", "7", "--server", "http://"+free[0])
	server.stop()

	m.install(find(t, build(t, "1.2.4", "--skip=archive,sbom"), "*.deb"))
	m.wantCalls("daemon-reload", "daemon-reload", "try-restart sluice.service") // the old one's postrm, the new one's postinst
	if got := m.run("sluice", "version"); !strings.HasPrefix(got, "sluice v1.2.4 ") {
		t.Errorf("after the upgrade: %s", got)
	}
	if got := m.read("etc/sluice/sluice.yaml"); got != settings {
		t.Errorf("the upgrade changed the settings:\n%s", got)
	}
	server = launch(t, free[0], m.service())
	server.awaitReady()
	if got := m.run("sluice", "topic", "consume", "orders", "--max", "1", "--format", `%v`, "--brokers", free[1]); got != "kept" {
		t.Errorf("after the upgrade the topic has %q, want the record of before", got)
	}
	if got := m.run("sluice", "room", "show", "shop", "--json", "--server", "http://"+free[0]); !strings.Contains(got, `"capacity":7`) {
		t.Errorf("after the upgrade the room is %s, want its capacity of before", got)
	}
	server.stop()

	m.run("dpkg", "--remove", "sluice")
	m.wantCalls("disable --now sluice.service", "daemon-reload")
	m.wantGone("usr/bin/sluice", "usr/lib/systemd/system/sluice.service", "usr/share/man/man1/sluice.1.gz")
	if got := m.read("etc/sluice/sluice.yaml"); got != settings {
		t.Errorf("removing the package changed the settings:\n%s", got)
	}
	m.run("dpkg", "--purge", "sluice")
	m.wantGone("etc/sluice")
	if !m.has("var/lib/sluice/topic") {
		t.Error("the data went with the package")
	}
}

// install installs a package with the answer "keep my settings", as unattended upgrades do.
func (m *machine) install(deb string) {
	m.t.Helper()
	m.write("tmp/sluice.deb", string(readFile(m.t, deb)))
	overwrite(m.t, m.path("systemctl.log"), "")
	m.run("dpkg", "--force-confold", "--install", "/tmp/sluice.deb")
}

// service returns the command of the unit, as its user.
func (m *machine) service() *exec.Cmd {
	m.t.Helper()
	unit := m.read("usr/lib/systemd/system/sluice.service")
	field := func(name string) string {
		match := regexp.MustCompile(`(?m)^` + name + `=(.+)$`).FindStringSubmatch(unit)
		if match == nil {
			m.t.Fatalf("the unit has no %s:\n%s", name, unit)
		}
		return match[1]
	}
	return m.command(m.userOf(field("User")), strings.Fields(field("ExecStart"))...)
}

// checkUnit checks the installed unit with systemd's own tools: it has no mistake, and leaves the
// service little to harm.
func checkUnit(t *testing.T, m *machine) {
	t.Helper()
	unit := filepath.Join(t.TempDir(), "sluice.service")
	overwrite(t, unit, replace(t, m.read("usr/lib/systemd/system/sluice.service"), "/usr/bin/sluice", m.path("usr/bin/sluice")))
	if out := output(t, "systemd-analyze", "--man=no", "verify", unit); strings.Contains(out, "sluice.service") {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	output(t, "systemd-analyze", "--no-pager", "security", "--offline=true", "--threshold=20", unit)
}

// wantCalls checks what systemctl was called with since the last check.
func (m *machine) wantCalls(want ...string) {
	m.t.Helper()
	if got := m.read("systemctl.log"); got != strings.Join(want, "\n")+"\n" {
		m.t.Errorf("systemctl was called with\n%swant\n%s", got, strings.Join(want, "\n"))
	}
	overwrite(m.t, m.path("systemctl.log"), "")
}

func (m *machine) wantGone(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if m.has(name) {
			m.t.Errorf("/%s is still there", name)
		}
	}
}

// overwrite changes the content of a file, and leaves its owner and permissions.
func overwrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
