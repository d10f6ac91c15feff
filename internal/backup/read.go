package backup

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Read reads a backup, calls describe when it has read the description, and file with each file, and
// returns what the backup has. The checksums come last, so what file has got is to be trusted when Read
// has returned no error. Without the function file it skips what is in the files, which it does not check
// then. Errors: *DamageError, and those of the functions.
func Read(from io.Reader, describe func(Description) error, file func(of Entry, content io.Reader) error) (*Inventory, error) {
	archive := tar.NewReader(from)
	has := &Inventory{Files: map[string]FileSum{}}
	if err := has.readDescription(archive, describe); err != nil {
		return nil, err
	}
	for {
		header, err := archive.Next()
		if err != nil {
			return nil, readError("", err)
		}
		_, twice := has.Files[header.Name]
		switch {
		case header.Name == sumsName:
			return has, has.check(archive)
		case header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) || twice:
			return nil, &DamageError{header.Name, "it is not a file of a backup, or is there twice"}
		}
		if err := has.read(header, archive, file); err != nil {
			return nil, err
		}
	}
}

// read reads a file.
func (c *Inventory) read(header *tar.Header, archive io.Reader, file func(Entry, io.Reader) error) error {
	entry, err := entryOf(header)
	if err != nil {
		return err
	}
	read := FileSum{Size: entry.Base.Size + entry.Size}
	if file != nil {
		content := &failing{Reader: io.TeeReader(archive, entry.sum)}
		if err := file(entry, content); err != nil {
			return cmp.Or(readError(header.Name, content.err), err)
		}
		read.SHA256 = hex.EncodeToString(entry.sum.Sum(nil))
	}
	c.Files[header.Name] = read
	return nil
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

func (c *Inventory) readDescription(archive *tar.Reader, describe func(Description) error) error {
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
	switch {
	case d.Format != Format && d.Format != IncrementalFormat:
		return fmt.Errorf("the backup has format %d, this program reads formats %d and %d: use the version of sluice that wrote it", d.Format, Format, IncrementalFormat)
	case (d.Format == IncrementalFormat) != (d.Base != nil):
		return &DamageError{descriptionName, "an incremental backup names its base, and no other does"}
	}
	sum := sha256.Sum256(text)
	c.Files[descriptionName] = FileSum{int64(len(text)), hex.EncodeToString(sum[:])}
	c.TakenAt = d.TakenAt
	return describe(d)
}

// check compares the checksums of the files with those in the backup, or takes them from there.
func (c *Inventory) check(content io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(content, maxSums))
	if err != nil {
		return readError(sumsName, err)
	}
	sums := make(map[string]string, len(c.Files))
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		file, exists := c.Files[name]
		switch {
		case !exists || sums[name] != "":
			return &DamageError{name, "it is missing"}
		case len(sum) != 2*sha256.Size || file.SHA256 != "" && file.SHA256 != sum:
			return &DamageError{name, "its checksum differs"}
		}
		sums[name] = sum
		c.Files[name] = FileSum{file.Size, sum}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if sums[name] == "" {
			return &DamageError{name, "it has no checksum"}
		}
	}
	delete(c.Files, descriptionName)
	id := sha256.Sum256(text)
	c.ID = hex.EncodeToString(id[:])
	return nil
}
