package backup

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// Format is the format that this program writes and reads.
	Format = 1

	descriptionName = "sluice-backup.json"
	sumsName        = "sluice-backup.sha256"
	// The most bytes of the description and of the checksums: of about 500,000 files.
	maxDescription = 1 << 20
	maxSums        = 64 << 20
)

// Description describes a backup.
type Description struct {
	Format int `json:"format"`
	// TakenAt is when it was begun: it has everything acknowledged before.
	TakenAt time.Time `json:"taken_at"`
	// Parts are those that it has: bulk, room, topic.
	Parts []string `json:"parts"`
	// Elsewhere is where the parts are that the server keeps elsewhere, so that the backup lacks
	// them.
	Elsewhere map[string]string `json:"elsewhere,omitempty"`
	// Files and Bytes count the files, and what is in them.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// DamageError reports that a backup is not as it was written.
type DamageError struct {
	// Path is the damaged file in the backup; empty if it is the backup as a whole.
	Path string
	Why  string
}

func (e *DamageError) Error() string {
	if e.Path == "" {
		return "the backup is damaged: " + e.Why
	}
	return fmt.Sprintf("the backup is damaged: %s: %s", e.Path, e.Why)
}

var errEndsEarly = &DamageError{Why: "it ends before its checksums: it was not written to its end"}

// Write writes the backup of a snapshot, which belongs into it up to the sizes by path below dir,
// other files as they are.
func Write(ctx context.Context, to io.Writer, dir string, sizes map[string]int64, d Description) error {
	files, err := list(dir, sizes)
	if err != nil {
		return err
	}
	d.Format, d.Files, d.Bytes = Format, len(files), 0
	for _, f := range files {
		d.Bytes += f.size
	}
	description, err := json.Marshal(&d)
	if err != nil {
		return err
	}
	w := writer{tar: tar.NewWriter(to), at: d.TakenAt}
	if err := w.add(descriptionName, int64(len(description)), bytes.NewReader(description)); err != nil {
		return err
	}
	for _, f := range files {
		if err := w.addFile(ctx, dir, f); err != nil {
			return err
		}
	}
	sums := strings.NewReader(w.sums.String())
	return errors.Join(w.add(sumsName, sums.Size(), sums), w.tar.Close())
}

// file is a file of a snapshot, and how much of it belongs to the backup.
type file struct {
	name string
	size int64
}

func list(dir string, sizes map[string]int64) (files []file, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := file{name, info.Size()}
		if size, grows := sizes[name]; grows {
			f.size = min(f.size, size)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// writer writes files and collects their checksums.
type writer struct {
	tar  *tar.Writer
	at   time.Time
	sums strings.Builder
}

func (w *writer) addFile(ctx context.Context, dir string, f file) error {
	from, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.name)))
	if err != nil {
		return err
	}
	err = w.add(f.name, f.size, cancelable{ctx, io.LimitReader(from, f.size)})
	return errors.Join(err, from.Close())
}

func (w *writer) add(name string, size int64, from io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.at.Truncate(time.Second)}
	if err := w.tar.WriteHeader(header); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w.tar, sum), from); err != nil {
		return fmt.Errorf("back up %s: %w", name, err)
	}
	fmt.Fprintf(&w.sums, "%x  %s\n", sum.Sum(nil), name)
	return w.tar.Flush() // fails if the file was shorter
}

// cancelable is a reader that fails when its context has ended.
type cancelable struct {
	ctx context.Context
	io.Reader
}

func (c cancelable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(b)
}

// Read reads a backup, calls describe when it has read the description, and file with each file.
// The checksums come last, so what file has got is to be trusted when Read has returned nil. Errors:
// *DamageError, and those of the functions.
func Read(from io.Reader, describe func(Description) error, file func(name string, size int64, content io.Reader) error) error {
	archive := tar.NewReader(from)
	sums := map[string]string{}
	if err := readDescription(archive, sums, describe); err != nil {
		return err
	}
	for {
		header, err := archive.Next()
		if err != nil {
			return readError("", err)
		}
		switch {
		case header.Name == sumsName:
			return check(archive, sums)
		case header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) || sums[header.Name] != "":
			return &DamageError{header.Name, "it is not a file of a backup, or is there twice"}
		}
		sum := sha256.New()
		content := &failing{Reader: io.TeeReader(archive, sum)}
		if err := file(header.Name, header.Size, content); err != nil {
			return cmp.Or(readError(header.Name, content.err), err)
		}
		sums[header.Name] = hex.EncodeToString(sum.Sum(nil))
	}
}

// failing remembers the error of a reader.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// readError returns the error of reading a backup.
func readError(name string, err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errEndsEarly
	case errors.Is(err, tar.ErrHeader):
		return &DamageError{name, "it is not a tar"}
	}
	return err
}

func readDescription(archive *tar.Reader, sums map[string]string, describe func(Description) error) error {
	header, err := archive.Next()
	if err != nil || header.Name != descriptionName {
		return cmp.Or[error](readError("", err), &DamageError{Why: "it does not begin as a backup of sluice"})
	}
	text, err := io.ReadAll(io.LimitReader(archive, maxDescription))
	if err != nil {
		return readError(descriptionName, err)
	}
	var d Description
	if err := json.Unmarshal(text, &d); err != nil {
		return &DamageError{descriptionName, err.Error()}
	}
	if d.Format != Format {
		return fmt.Errorf("the backup has format %d, this program reads format %d: use the version of sluice that wrote it", d.Format, Format)
	}
	sum := sha256.Sum256(text)
	sums[descriptionName] = hex.EncodeToString(sum[:])
	return describe(d)
}

// check compares the checksums of the files with those in the backup.
func check(content io.Reader, sums map[string]string) error {
	text, err := io.ReadAll(io.LimitReader(content, maxSums))
	if err != nil {
		return readError(sumsName, err)
	}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		found, exists := sums[name]
		switch {
		case !exists:
			return &DamageError{name, "it is missing"}
		case found != sum:
			return &DamageError{name, "its checksum differs"}
		}
		delete(sums, name)
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		return &DamageError{name, "it has no checksum"}
	}
	return nil
}
