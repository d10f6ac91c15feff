package input

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// Name returns the name of a file for people.
func Name(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// File is an open input that counts the bytes read.
type File struct {
	io.ReadCloser
	read int64
	size int64 // 0: not known
}

// Read implements io.Reader.
func (c *File) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	return n, err
}

// Progress returns how many bytes were read and the size; 0 if it is not known.
func (c *File) Progress() (read, size int64) { return c.read, c.size }

// Open opens a file, or standard input.
func Open(file string, stdin io.Reader) (*File, error) {
	if file == "-" {
		return &File{ReadCloser: io.NopCloser(stdin)}, nil
	}
	opened, err := os.Open(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, &Error{File: file, Err: err}
	}
	input := &File{ReadCloser: opened}
	if info, err := opened.Stat(); err == nil {
		if info.IsDir() {
			opened.Close() //nolint:errcheck // It is a directory.
			return nil, &Error{File: file, Err: errors.New("a directory; want a file of CSV or NDJSON")}
		}
		input.size = info.Size()
	}
	return input, nil
}

// ReadAll reads a file, or standard input if it is given, of at most so many bytes.
func ReadAll(file string, stdin io.Reader, most int) ([]byte, error) {
	if file != "-" || stdin == nil {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }() // the file was only read
		stdin = opened
	}
	text, err := io.ReadAll(io.LimitReader(stdin, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: larger than %d bytes", file, most)
	}
	return text, err
}

// Located adds the file to an error, and the line if the parser gives one.
func Located(file string, err error) error {
	var wrong *upload.Error
	var place *Error
	if errors.As(err, &place) {
		return err
	}
	if errors.As(err, &wrong) {
		return Wrong(Name(file), Line(wrong.Line), errors.New(wrong.Why))
	}
	return &Error{File: Name(file), Err: err}
}

// Error is an error in an input, with its place.
type Error struct {
	File  string
	Place string // empty: the input as a whole
	Err   error
}

// Wrong returns an error at a place of a file.
func Wrong(file, place string, err error) *Error {
	return &Error{File: file, Place: place, Err: err}
}

func (e *Error) Error() string {
	if e.Place == "" {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.File, e.Place, e.Err)
}

// Line formats the number of a line.
func Line(number int64) string { return fmt.Sprintf("line %d", number) }

func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the code of a usage error.
func (e *Error) ExitCode() int { return exit.CodeUsage }

// NoColumn returns an error that lists the existing columns.
func NoColumn(noun, column string, have []string) error {
	return fmt.Errorf("there is no %s %q: it has %s", noun, column, strings.Join(have, ", "))
}
