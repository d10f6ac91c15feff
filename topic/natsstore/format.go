package natsstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-project/sluice/topic"
)

const (
	formatFile = "FORMAT"
	formatText = "sluice topic, standalone, format 1\n"
	lockFile   = "LOCK"

	metaStream  = "meta"
	metaSubject = "meta"
	logStream   = "log-"
	logSubject  = "log."
	markHeader  = "Sluice-Mark"
)

// ErrInUse says that another process, or another Store of this process, has the directory
// open.
var ErrInUse = errors.New("another process has it open: stop that one, or choose another directory")

// FormatError says that a directory belongs to another kind of store, another node or a newer
// release. The engine of a cluster's node, for example, would delete the streams of a single
// node as orphans.
type FormatError struct {
	// Dir is the directory. Found is the mark in it, empty if it has files and no mark.
	// Want is the expected mark.
	Dir, Found, Want string
}

func (e *FormatError) Error() string {
	switch {
	case e.Found == "":
		return fmt.Sprintf("%s is not empty and was not made by Sluice: choose another directory", e.Dir)
	case e.Found == strings.TrimSpace(formatText), strings.HasPrefix(e.Found, "sluice topic, files,"):
		return fmt.Sprintf("%s holds the topics of a single node: start the cluster with another directory, and copy them with `sluice topic migrate`",
			e.Dir)
	}
	return fmt.Sprintf("%s is marked %q, want %q: open it in the mode and with the release that made it, or choose another directory",
		e.Dir, e.Found, e.Want)
}

// formatOf returns the mark of the directories that these options open.
func formatOf(options Options) string {
	if options.Cluster == nil {
		return formatText
	}
	return fmt.Sprintf("sluice topic, cluster %s, node %d, format 1\n", options.Cluster.Name, options.Cluster.Node)
}

// openDirs are the directories that this process has locked: the system's locks hold
// between processes only, and closing any file of a lock releases it.
var openDirs sync.Map

// dirLock is a locked directory.
type dirLock struct {
	file *os.File
	dir  string
}

func (l *dirLock) Close() error {
	defer openDirs.Delete(l.dir)
	return l.file.Close()
}

// lockDir makes the directory if there is none, and locks it until the result is closed.
func lockDir(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if _, open := openDirs.LoadOrStore(dir, true); open {
		return nil, ErrInUse
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		openDirs.Delete(dir)
		return nil, err
	}
	lock := &dirLock{file, dir}
	if err := tryLock(file); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
			return nil, ErrInUse
		}
		return nil, err
	}
	return lock, nil
}

// checkFormat refuses a directory with another mark, and marks an empty one.
func checkFormat(dir, mark string) error {
	path := filepath.Join(dir, formatFile)
	found, err := os.ReadFile(path)
	switch {
	case err == nil && string(found) == mark:
		return nil
	case err == nil:
		return &FormatError{Dir: dir, Found: strings.TrimSpace(string(found[:min(len(found), 200)])), Want: strings.TrimSpace(mark)}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != lockFile && name != formatFile+".new" {
			return &FormatError{Dir: dir, Want: strings.TrimSpace(mark)}
		}
	}
	return writeFormat(path, mark)
}

// writeFormat writes the mark atomically.
func writeFormat(path, mark string) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.WriteString(mark)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// validName reports whether a log may have that name.
func validName(name string) bool {
	if name == "" || len(name) > 200 {
		return false
	}
	for _, c := range []byte(name) {
		if !plain(c) {
			return false
		}
	}
	return true
}

// plain reports whether a byte is valid as it is in names of streams and subjects.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// encodeMark encodes a mark as a header's value: its fields in decimal.
func encodeMark(m topic.Mark) string {
	var buffer [128]byte
	b := strconv.AppendInt(buffer[:0], m.Base, 10)
	for _, field := range [...]int64{m.Next, int64(m.Epoch), m.MaxTimestamp, m.Bytes, m.Released} {
		b = append(b, ',')
		b = strconv.AppendInt(b, field, 10)
	}
	return string(b)
}

// decodeMark decodes the result of encodeMark.
func decodeMark(value string) (topic.Mark, error) {
	var fields [6]int64
	rest := value
	for i := range fields {
		field, after, more := strings.Cut(rest, ",")
		bits := 64
		if i == 2 {
			bits = 32
		}
		number, err := strconv.ParseInt(field, 10, bits)
		if err != nil || more != (i < len(fields)-1) {
			return topic.Mark{}, fmt.Errorf("header %s is %q: want 6 numbers", markHeader, value)
		}
		fields[i], rest = number, after
	}
	return topic.Mark{
		Base: fields[0], Next: fields[1], Epoch: int32(fields[2]),
		MaxTimestamp: fields[3], Bytes: fields[4], Released: fields[5],
	}, nil
}
