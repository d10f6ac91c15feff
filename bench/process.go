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

// startWithin bounds the start of a server, and stopWithin its stop.
const (
	startWithin = 2 * time.Minute
	stopWithin  = 2 * time.Minute
)

// find returns the path of a command: in PATH, or in the last of the folders that match a pattern.
// Debian keeps PostgreSQL's outside PATH.
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

// account is the user that a server runs as.
type account struct{ uid, gid int }

// serverAccount returns this process's own account, or for root the named one: PostgreSQL refuses
// to run as root.
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

// folderFor creates a folder that belongs to the account.
func folderFor(parent, pattern string, a account) (string, error) {
	folder, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return folder, os.Chown(folder, a.uid, a.gid)
}

// process is a server that this package started.
type process struct {
	command *exec.Cmd
	output  bytes.Buffer // read it only after done
	done    chan struct{}
	err     error // read it only after done
}

// commandAs prepares a command that runs as the account in a folder. It has a process group of its
// own, so that only this process handles an interrupt in a terminal, and it is killed when this
// process dies.
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

// start starts a server, and waits until ready returns nil.
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

// stop sends the signal and waits for the end of the process.
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

// removeAll removes a server's folder; files that the server removes at the same time are no error.
func removeAll(folder string) error {
	err := os.RemoveAll(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
