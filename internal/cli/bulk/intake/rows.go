package intake

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/internal/cli/input"
)

// isNDJSON reports whether an input is NDJSON: by the file's name, or without a name by its first
// character.
func isNDJSON(file string, content *bufio.Reader) bool {
	if file != "-" {
		extension := strings.ToLower(filepath.Ext(file))
		return slices.Contains([]string{".ndjson", ".jsonl"}, extension)
	}
	start, _ := content.Peek(1)
	return string(start) == "{"
}

// OpenRows opens a file of rows, which must have a column for the tenant. With an empty column the
// caller knows the tenant.
func OpenRows(file string, stdin io.Reader, column string) (RowInput, error) {
	stream, err := input.Open(file, stdin)
	if err != nil {
		return nil, err
	}
	content := bufio.NewReaderSize(stream, 64<<10)
	if isNDJSON(file, content) {
		return &ndjsonRows{NDJSON: upload.NewNDJSON(content), File: stream, column: column}, nil
	}
	rows := &CsvRows{CSV: upload.NewCSV(content), File: stream, Name: column}
	header, err := rows.Header()
	if err != nil {
		stream.Close() // The file was only read.
		return nil, input.Located(file, err)
	}
	if rows.Column = slices.Index(header, column); rows.Column < 0 && column != "" {
		stream.Close() // The file was only read.
		return nil, input.Located(file, input.NoColumn("column", column, header))
	}
	return rows, nil
}

// Lines returns a parser of lines that are JSON values.
func Lines(from io.Reader) *upload.NDJSON { return upload.NewNDJSON(from) }

// CsvRows are the rows of a CSV file.
type CsvRows struct {
	*upload.CSV
	*input.File
	Name   string
	Column int
}

// Tenant returns the value in the tenant's column of the last row.
func (r *CsvRows) Tenant() (string, error) {
	value := r.Value(r.Column)
	if len(value) == 0 {
		return "", fmt.Errorf("the tenant is empty: column %q needs a value", r.Name)
	}
	return string(value), nil
}

// Place implements rowSource.
func (r *CsvRows) Place() string { return input.Line(r.Line()) }

// ndjsonRows are the rows of an NDJSON file.
type ndjsonRows struct {
	*upload.NDJSON
	*input.File
	column string
	row    []byte
}

// Next returns the next row.
func (r *ndjsonRows) Next() (row []byte, err error) {
	r.row, err = r.NDJSON.Next()
	return r.row, err
}

// Tenant returns the value of the tenant's field of the last row.
func (r *ndjsonRows) Tenant() (string, error) { return field(r.row, r.column) }

// Place implements rowSource.
func (r *ndjsonRows) Place() string { return input.Line(r.Line()) }

// RowInput is a source of rows that must be closed.
type RowInput interface {
	rowSource
	io.Closer
	// Progress returns how many bytes were read and the size; 0 if it is not known.
	Progress() (read, size int64)
}
