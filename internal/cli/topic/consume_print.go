package topic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/cli/term"
)

// recordPrinter writes one record.
type recordPrinter func(w io.Writer, record *kgo.Record) error

// printerOf returns the printer of a layout, of JSON, or of text for people.
func printerOf(format string, asJSON bool) (recordPrinter, error) {
	switch {
	case asJSON:
		return printJSON, nil
	case format == "":
		return printText, nil
	}
	formatter, err := kgo.NewRecordFormatter(format)
	if err != nil {
		return nil, err
	}
	var line []byte
	return func(w io.Writer, record *kgo.Record) error {
		line = formatter.AppendRecord(line[:0], record)
		_, err := w.Write(line)
		return err
	}, nil
}

// printText writes a line: partition and offset, time, key, value, headers.
func printText(w io.Writer, record *kgo.Record) error {
	line := fmt.Sprintf("%d/%d  %s  ", record.Partition, record.Offset, record.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"))
	if record.Key != nil {
		line += legible(record.Key) + ": "
	}
	if record.Value == nil {
		line += "(no value)"
	} else {
		line += legible(record.Value)
	}
	var headers []string
	for _, header := range record.Headers {
		headers = append(headers, legible([]byte(header.Key))+"="+legible(header.Value))
	}
	if len(headers) > 0 {
		line += "  {" + strings.Join(headers, ", ") + "}"
	}
	_, err := io.WriteString(w, line+"\n")
	return err
}

// legible escapes the characters of text that would break a line or affect the terminal. For data
// that is not text it returns the length.
func legible(data []byte) string {
	if !utf8.Valid(data) {
		return "(" + term.Counted(int64(len(data)), "byte") + ", no text)"
	}
	if bytes.IndexFunc(data, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return string(data)
	}
	var text strings.Builder
	for _, r := range string(data) {
		if unicode.IsPrint(r) {
			text.WriteRune(r)
			continue
		}
		quoted := fmt.Sprintf("%q", r)
		text.WriteString(quoted[1 : len(quoted)-1])
	}
	return text.String()
}

// printJSON writes an object that "topic produce --json" reads.
func printJSON(w io.Writer, record *kgo.Record) error {
	timestamp := record.Timestamp.UnixMilli()
	printed := jsonRecord{Topic: record.Topic, Partition: &record.Partition, Offset: &record.Offset, Timestamp: &timestamp}
	if record.Timestamp.Equal(time.UnixMilli(-1)) {
		printed.Timestamp = nil
	}
	if key := string(record.Key); record.Key != nil && utf8.ValidString(key) {
		printed.Key = &key
	} else {
		printed.KeyBase64 = record.Key
	}
	if record.Value != nil && utf8.Valid(record.Value) {
		text, err := marshalText(string(record.Value))
		if err != nil {
			return err
		}
		printed.Value = text
	} else {
		printed.ValueBase64 = record.Value
	}
	for _, header := range record.Headers {
		if utf8.Valid(header.Value) {
			if printed.Headers == nil {
				printed.Headers = map[string]texts{}
			}
			printed.Headers[header.Key] = append(printed.Headers[header.Key], string(header.Value))
			continue
		}
		if printed.HeadersBase64 == nil {
			printed.HeadersBase64 = map[string]byteSlices{}
		}
		printed.HeadersBase64[header.Key] = append(printed.HeadersBase64[header.Key], slices.Clone(header.Value))
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(printed)
}

// marshalText returns a JSON string in which "<" is not escaped.
func marshalText(text string) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(text)
	return bytes.TrimSpace(out.Bytes()), err
}
