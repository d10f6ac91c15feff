package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/bulk/upload"
)

// inputName is how a file is named to people.
func inputName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// countedInput counts what is read of an input.
type countedInput struct {
	io.ReadCloser
	read int64
	size int64 // 0: not known
}

// Read implements io.Reader.
func (c *countedInput) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	return n, err
}

// Progress is how many bytes were read, and of how many; 0: not known.
func (c *countedInput) Progress() (read, size int64) { return c.read, c.size }

// openInput opens a file, or standard input.
func openInput(file string, stdin io.Reader) (*countedInput, error) {
	if file == "-" {
		return &countedInput{ReadCloser: io.NopCloser(stdin)}, nil
	}
	opened, err := os.Open(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, &inputError{File: file, Err: err}
	}
	input := &countedInput{ReadCloser: opened}
	if info, err := opened.Stat(); err == nil {
		if info.IsDir() {
			opened.Close() //nolint:errcheck // It is a directory.
			return nil, &inputError{File: file, Err: errors.New("a directory; want a file of CSV or NDJSON")}
		}
		input.size = info.Size()
	}
	return input, nil
}

// isNDJSON tells the format of an input: by the name of the file, or by the
// first character of what has no name.
func isNDJSON(file string, content *bufio.Reader) bool {
	if file != "-" {
		extension := strings.ToLower(filepath.Ext(file))
		return slices.Contains([]string{".ndjson", ".jsonl"}, extension)
	}
	start, _ := content.Peek(1)
	return string(start) == "{"
}

// bulkInput opens a file of rows that must have a column for the tenant; with an
// empty column the caller knows the tenant.
func bulkInput(file string, stdin io.Reader, column string) (rowInput, error) {
	stream, err := openInput(file, stdin)
	if err != nil {
		return nil, err
	}
	content := bufio.NewReaderSize(stream, 64<<10)
	if isNDJSON(file, content) {
		return &ndjsonRows{NDJSON: upload.NewNDJSON(content), countedInput: stream, column: column}, nil
	}
	rows := &csvRows{CSV: upload.NewCSV(content), countedInput: stream, name: column}
	header, err := rows.Header()
	if err != nil {
		stream.Close() // It was only read.
		return nil, located(file, err)
	}
	if rows.column = slices.Index(header, column); rows.column < 0 && column != "" {
		stream.Close() // It was only read.
		return nil, located(file, noColumn("column", column, header))
	}
	return rows, nil
}

// located names the file, and the line if the parser told it. An error of the
// stream itself is the file's too; what a topic tells is located already.
func located(file string, err error) error {
	var wrong *upload.Error
	var place *inputError
	var reading *topicError
	if errors.As(err, &place) || errors.As(err, &reading) {
		return err
	}
	if errors.As(err, &wrong) {
		return &inputError{inputName(file), line(wrong.Line), errors.New(wrong.Why)}
	}
	return &inputError{File: inputName(file), Err: err}
}

// csvRows are the rows of a CSV file.
type csvRows struct {
	*upload.CSV
	*countedInput
	name   string
	column int
}

// Tenant is the value in the tenant's column of the last row.
func (r *csvRows) Tenant() (string, error) {
	value := r.Value(r.column)
	if len(value) == 0 {
		return "", fmt.Errorf("the tenant is empty: column %q needs a value", r.name)
	}
	return string(value), nil
}

// Place implements rowSource.
func (r *csvRows) Place() string { return line(r.Line()) }

// ndjsonRows are the rows of an NDJSON file.
type ndjsonRows struct {
	*upload.NDJSON
	*countedInput
	column string
	row    []byte
}

// Next returns the next row.
func (r *ndjsonRows) Next() (row []byte, err error) {
	r.row, err = r.NDJSON.Next()
	return r.row, err
}

// Tenant is the value of the tenant's field of the last row.
func (r *ndjsonRows) Tenant() (string, error) { return field(r.row, r.column) }

// Place implements rowSource.
func (r *ndjsonRows) Place() string { return line(r.Line()) }
