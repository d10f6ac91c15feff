package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// errorsName is the file with the reasons of files that are missing.
const errorsName = "errors.txt"

// maxFile is the most bytes of one file.
const maxFile = 64 << 20

// Archive writes a bundle. Close it.
type Archive struct {
	zip    *gzip.Writer
	tar    *tar.Writer
	at     time.Time
	failed strings.Builder
	// Files counts the files that were added.
	Files int
}

// NewArchive returns an archive that writes to w, whose files are of that time.
func NewArchive(w io.Writer, at time.Time) *Archive {
	zip := gzip.NewWriter(w)
	return &Archive{zip: zip, tar: tar.NewWriter(zip), at: at}
}

// Add adds a file with what get returns, or the reason why it is missing. Only an error of the writer
// is returned.
func (a *Archive) Add(name string, get func() ([]byte, error)) error {
	content, err := get()
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("it has %d bytes, and a file of a bundle has at most %d", len(content), maxFile)
	}
	if err != nil {
		fmt.Fprintf(&a.failed, "%s: %v\n", name, err)
		return nil
	}
	return a.write(name, content)
}

func (a *Archive) write(name string, content []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: a.at})
	if err != nil {
		return err
	}
	a.Files++
	_, err = a.tar.Write(content)
	return err
}

// Merge adds the files of another bundle, which has no Merge of its own.
func (a *Archive) Merge(from io.Reader) error {
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(io.LimitReader(files, maxFile+1))
		if err != nil {
			return err
		}
		if header.Name == errorsName {
			a.failed.Write(content)
			continue
		}
		if err := a.Add(header.Name, func() ([]byte, error) { return content, nil }); err != nil {
			return err
		}
	}
}

// Missing returns a line for each file that is missing.
func (a *Archive) Missing() string { return a.failed.String() }

// Close ends the archive, with the reasons of missing files.
func (a *Archive) Close() error {
	var err error
	if a.failed.Len() > 0 {
		err = a.write(errorsName, []byte(a.failed.String()))
	}
	return errors.Join(err, a.tar.Close(), a.zip.Close())
}
