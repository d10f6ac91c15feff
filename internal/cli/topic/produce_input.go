package topic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
)

// maxRecordLine bounds a line of records.
const maxRecordLine = 16 << 20

// recordFormat is the format of the input.
type recordFormat struct {
	separator, keyColumn string
	csv, json            bool
	header               []string
	// headers are added to every record.
	headers []kgo.RecordHeader
}

// check refuses flags that exclude each other, and reads the headers.
func (f *recordFormat) check() (err error) {
	switch {
	case f.csv && f.json:
		return exit.Usage("give either --csv or --json, not both")
	case f.separator != "" && (f.csv || f.json):
		return exit.Usage("--key-separator is for plain lines, not for --csv or --json")
	case f.keyColumn != "" && !f.csv:
		return exit.Usage("--key-column needs --csv")
	}
	f.headers, err = parseHeaders(f.header)
	return err
}

// recordReader yields records, and io.EOF after the last.
type recordReader interface {
	Next() (*kgo.Record, error)
}

// open returns a reader of a file with that name.
func (f *recordFormat) open(name string, from io.Reader) (recordReader, error) {
	if f.csv {
		rows := upload.NewCSV(from)
		header, err := rows.Header()
		if err != nil {
			return nil, input.Located(name, err)
		}
		column := slices.Index(header, f.keyColumn)
		if column < 0 && f.keyColumn != "" {
			return nil, input.Located(name, input.NoColumn("column", f.keyColumn, header))
		}
		return &csvRecords{format: f, name: name, rows: rows, key: column}, nil
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxRecordLine)
	return &lineRecords{format: f, name: name, lines: lines}, nil
}

// new returns a record with the headers of the format.
func (f *recordFormat) new(key, value []byte) *kgo.Record {
	return &kgo.Record{Key: key, Value: value, Headers: f.headers, Partition: -1}
}

// lineRecords reads a record from each line: plain text, or a JSON object.
type lineRecords struct {
	format *recordFormat
	name   string
	lines  *bufio.Scanner
	number int64
}

// Next implements recordReader. It skips empty lines between JSON objects.
func (r *lineRecords) Next() (*kgo.Record, error) {
	for r.lines.Scan() {
		r.number++
		if r.format.json && len(bytes.TrimSpace(r.lines.Bytes())) == 0 {
			continue
		}
		record, err := r.record(slices.Clone(r.lines.Bytes()))
		if err != nil {
			return nil, input.Wrong(r.name, input.Line(r.number), err)
		}
		return record, nil
	}
	err := r.lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return nil, input.Wrong(r.name, input.Line(r.number+1), fmt.Errorf("want at most %d bytes in a line", maxRecordLine))
	}
	if err != nil {
		return nil, &input.Error{File: r.name, Err: err}
	}
	return nil, io.EOF
}

func (r *lineRecords) record(line []byte) (*kgo.Record, error) {
	if r.format.json {
		return r.format.decode(line)
	}
	if r.format.separator == "" {
		return r.format.new(nil, line), nil
	}
	key, value, found := bytes.Cut(line, []byte(r.format.separator))
	if !found {
		return nil, fmt.Errorf("no %q in it: want a key, the separator and a value", r.format.separator)
	}
	return r.format.new(key, value), nil
}

// csvRecords reads a record from each row of a CSV file.
type csvRecords struct {
	format *recordFormat
	name   string
	rows   *upload.CSV
	key    int // -1: none
}

// Next implements recordReader.
func (r *csvRecords) Next() (*kgo.Record, error) {
	row, err := r.rows.Next()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, input.Located(r.name, err)
	}
	var key []byte
	if r.key >= 0 {
		key = slices.Clone(r.rows.Value(r.key))
	}
	return r.format.new(key, slices.Clone(row)), nil
}

// jsonRecord is a record as a JSON object: "consume --json" prints it and "produce --json" reads
// it.
type jsonRecord struct {
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	// Timestamp is in milliseconds since the epoch.
	Timestamp *int64 `json:"timestamp,omitempty"`
	// Key and Value are text; null means absent.
	Key           *string               `json:"key"`
	KeyBase64     []byte                `json:"key_base64,omitempty"`
	Value         json.RawMessage       `json:"value"`
	ValueBase64   []byte                `json:"value_base64,omitempty"`
	Headers       map[string]texts      `json:"headers,omitempty"`
	HeadersBase64 map[string]byteSlices `json:"headers_base64,omitempty"`
}

// decode reads a record.
func (f *recordFormat) decode(line []byte) (*kgo.Record, error) {
	var read jsonRecord
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return nil, fmt.Errorf(`want an object such as {"key":"a","value":"b","headers":{"tag":"paid"}}: %w`, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one object in a line")
	}
	if read.Key != nil && read.KeyBase64 != nil || hasValue(read.Value) && read.ValueBase64 != nil {
		return nil, errors.New("want key or key_base64, and value or value_base64, not both")
	}
	record := f.new(read.KeyBase64, read.ValueBase64)
	if read.Key != nil {
		record.Key = []byte(*read.Key)
	}
	if hasValue(read.Value) {
		record.Value = valueText(read.Value)
	}
	if read.Partition != nil {
		if *read.Partition < 0 {
			return nil, fmt.Errorf("partition %d: want 0 or more", *read.Partition)
		}
		record.Partition = *read.Partition
	}
	if read.Timestamp != nil && *read.Timestamp >= 0 {
		record.Timestamp = time.UnixMilli(*read.Timestamp)
	}
	record.Headers = append(slices.Clone(read.headers()), record.Headers...)
	return record, nil
}

func hasValue(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// valueText returns a string's content; for other JSON it returns the text.
func valueText(raw json.RawMessage) []byte {
	var content string
	if json.Unmarshal(raw, &content) == nil {
		return []byte(content)
	}
	return raw
}

// headers returns the headers, by name.
func (r *jsonRecord) headers() []kgo.RecordHeader {
	var headers []kgo.RecordHeader
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.HeadersBase64)) {
		for _, value := range r.HeadersBase64[name] {
			headers = append(headers, kgo.RecordHeader{Key: name, Value: value})
		}
	}
	return headers
}

// oneOrMore is one value in JSON, or a list of values.
type oneOrMore[T any] []T

// MarshalJSON implements json.Marshaler.
func (l oneOrMore[T]) MarshalJSON() ([]byte, error) {
	if len(l) == 1 {
		return json.Marshal(l[0])
	}
	return json.Marshal([]T(l))
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *oneOrMore[T]) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("[")) {
		return json.Unmarshal(raw, (*[]T)(l))
	}
	*l = make([]T, 1)
	return json.Unmarshal(raw, &(*l)[0])
}

type (
	texts      = oneOrMore[string]
	byteSlices = oneOrMore[[]byte]
)
