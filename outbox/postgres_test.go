package outbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/outbox"
)

// program is a process that is killed and started again with the same arguments. It ends with the
// test.
type program struct {
	t       *testing.T
	log     *os.File
	as      *syscall.Credential
	command []string
	process *exec.Cmd
	signal  syscall.Signal // of kill
}

func newProgram(t *testing.T, command ...string) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, log: log, command: command, signal: syscall.SIGKILL}
	t.Cleanup(func() {
		p.kill()
		_ = log.Close()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the log of %s:\n%s", filepath.Base(command[0]), text[max(0, len(text)-4000):])
		}
	})
	return p
}

func (p *program) start() {
	p.t.Helper()
	p.process = exec.CommandContext(context.Background(), p.command[0], p.command[1:]...)
	p.process.Dir = "/"
	p.process.Stdout, p.process.Stderr = p.log, p.log
	p.process.SysProcAttr = &syscall.SysProcAttr{Credential: p.as, Pdeathsig: syscall.SIGKILL}
	if err := p.process.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process without notice.
func (p *program) kill() { p.end(p.signal) }

// end sends a signal and waits until the process has ended.
func (p *program) end(signal syscall.Signal) {
	if p.process != nil {
		_ = p.process.Process.Signal(signal)
		_ = p.process.Wait()
	}
}

// startPostgres starts a PostgreSQL that has an outbox. Its commits are durable.
func startPostgres(t *testing.T) (p *program, url string, pool *pgxpool.Pool) {
	t.Helper()
	initdb, err := exec.LookPath("initdb")
	if err != nil { // Debian keeps it outside PATH
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
		if len(found) == 0 {
			t.Fatal("PostgreSQL is not installed; on Debian, as root: apt-get install --yes postgresql")
		}
		initdb = found[len(found)-1]
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "sluice-outbox") // others than root cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	as := account(t)
	if as != nil {
		if err := os.Chown(folder, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data, port := filepath.Join(folder, "data"), ports.Take(t, 1)[0]
	p = newProgram(t, initdb, "-D", data, "-U", "outbox", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync")
	p.as = as
	p.start()
	if err := p.process.Wait(); err != nil {
		t.Fatalf("initdb: %v", err)
	}
	p.command = []string{filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data, "-p", strconv.Itoa(port), "-k", folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=on"}
	p.signal = syscall.SIGQUIT // its processes end at once, as in a crash; SIGKILL would end one of them
	p.start()
	url = fmt.Sprintf("postgres://outbox@%s/postgres", ports.Addr(port))
	if pool, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	until.Succeeds(t, "PostgreSQL is ready", func() error {
		_, err := pool.Exec(t.Context(), outbox.Schema)
		return err
	})
	return p, url, pool
}

// account returns whom PostgreSQL runs as: root it refuses. Nil is the account of the test.
func account(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(found.Uid, 10, 32) // digits
	gid, _ := strconv.ParseUint(found.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// binaries is the folder of sluice and sluice-outbox, which TestMain builds.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "sluice-binaries"); err != nil {
		panic(err)
	}
	for folder, of := range map[string]string{"..": "./cmd/sluice", ".": "./cmd/sluice-outbox"} {
		command := exec.CommandContext(context.Background(), "go", "build", "-C", folder, "-o", binaries+"/", of)
		if out, err := command.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", of, err, out)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(binaries)
	os.Exit(code)
}
