package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// startWithin bounds how long a server may take until it answers, and stopWithin
// how long until it has ended.
const (
	startWithin = 30 * time.Second
	stopWithin  = 30 * time.Second
)

// find returns where a command is: in PATH, or in one of the folders of a
// pattern, the last one first. Debian keeps PostgreSQL's outside PATH.
func find(name, pattern, debianPackage string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob(filepath.Join(pattern, name))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%s is not installed; on Debian, as root: apt-get install --yes %s", name, debianPackage)
	}
	slices.Sort(found)
	return found[len(found)-1], nil
}

// account is whom a server runs as.
type account struct{ uid, gid int }

// serverAccount returns this process' own account, or the named one for root:
// PostgreSQL refuses to run as root.
func serverAccount(name string) (account, error) {
	if os.Geteuid() != 0 {
		return account{os.Geteuid(), os.Getegid()}, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("a server must not run as root, and there is no user to run it as: %w", err)
	}
	uid, err := strconv.Atoi(found.Uid)
	if err != nil {
		return account{}, err
	}
	gid, err := strconv.Atoi(found.Gid)
	return account{uid, gid}, err
}

// folderFor makes a folder that belongs to the account.
func folderFor(parent, pattern string, a account) (string, error) {
	folder, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return folder, os.Chown(folder, a.uid, a.gid)
}

// process is a server that was started here.
type process struct {
	command *exec.Cmd
	output  bytes.Buffer // read it only after done
	done    chan struct{}
	err     error // read it only after done
}

// commandAs prepares a command that runs as the account in a folder. It is in a
// process group of its own, so that an interrupt in a terminal is for us alone
// to act on, and it is killed when we die.
func commandAs(ctx context.Context, a account, folder, path string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = folder
	command.Env = append(os.Environ(), "LC_ALL=C")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a.uid != os.Geteuid() {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return command
}

// start starts a server, and waits until ready says that it answers.
func start(ctx context.Context, a account, folder string, ready func(context.Context) error, path string, args ...string) (*process, error) {
	p := &process{command: commandAs(context.WithoutCancel(ctx), a, folder, path, args...), done: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.done)
	}()
	if err := p.await(ctx, ready); err != nil {
		return nil, errors.Join(err, p.stop(syscall.SIGKILL))
	}
	return p, nil
}

func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %w\n%s", p.command.Path, p.err, &p.output)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", p.command.Path, err)
		case <-ticker.C:
		}
	}
}

// stop sends the signal and waits for the end.
func (p *process) stop(signal syscall.Signal) error {
	err := p.command.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("%s does not end", p.command.Path), p.command.Process.Kill())
	}
}

// removeAll removes a server's folder; what the server removes itself at the
// same time is no error.
func removeAll(folder string) error {
	err := os.RemoveAll(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
