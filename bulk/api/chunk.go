package api

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/upload"
)

const (
	ndjsonType = "application/x-ndjson"
	csvType    = "text/csv"
)

// parse makes a parser of a chunk.
type parse func(io.Reader) upload.Parser

// formatOf finds the parser for a content type.
func formatOf(contentType string) (parse, error) {
	name, parameters, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(parameters["charset"])
	if err == nil && (charset == "" || charset == "utf-8") {
		switch name {
		case ndjsonType:
			return func(r io.Reader) upload.Parser { return upload.NewNDJSON(r) }, nil
		case csvType:
			return func(r io.Reader) upload.Parser { return upload.NewCSV(r) }, nil
		}
	}
	return nil, newProblem(http.StatusUnsupportedMediaType, wire.CodeMediaType,
		fmt.Sprintf("content type %.100q: want %s or %s, in UTF-8", contentType, ndjsonType, csvType))
}

func checkEncoding(encoding string) error {
	switch strings.ToLower(encoding) {
	case "", "identity", "gzip":
		return nil
	}
	p := newProblem(http.StatusUnsupportedMediaType, wire.CodeMediaType,
		fmt.Sprintf("content encoding %.100q: want gzip or none", encoding))
	p.headers = http.Header{"Accept-Encoding": {"gzip"}}
	return p
}

// readChunk reads a body of at most MaxChunk bytes, also after decompression.
func readChunk(request *http.Request, encoding string) ([]byte, error) {
	var data bytes.Buffer
	if size := request.ContentLength; size > 0 && size <= MaxChunk {
		data.Grow(int(size) + bytes.MinRead) // So that it need not grow by doubling.
	}
	body := request.Body
	limited := &io.LimitedReader{R: body, N: MaxChunk + 1}
	if strings.EqualFold(encoding, "gzip") {
		unpacked, err := gzip.NewReader(limited)
		if err != nil {
			return nil, unreadable(err)
		}
		limited = &io.LimitedReader{R: unpacked, N: MaxChunk + 1}
	}
	if _, err := data.ReadFrom(limited); err != nil {
		return nil, unreadable(err)
	}
	if data.Len() > MaxChunk {
		return nil, newProblem(http.StatusRequestEntityTooLarge, wire.CodeTooLarge,
			fmt.Sprintf("the chunk has more than %d bytes: send it in smaller ones, each with its Upload-Offset", MaxChunk))
	}
	return data.Bytes(), nil
}

func unreadable(err error) *problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return newProblem(http.StatusRequestTimeout, wire.CodeTimeout, fmt.Sprintf("the body did not arrive within %v", bodyTimeout))
	}
	return newProblem(http.StatusBadRequest, wire.CodeInvalid, "the body cannot be read: "+err.Error())
}

// chunk is an upload that was read and not yet parsed.
type chunk struct {
	data  []byte
	parse parse
}

// batches yields the payloads of the chunk, a bounded number and size at a time,
// each batch in memory of its own. An error is a problem, and is the last.
func (c chunk) batches() iter.Seq2[[][]byte, error] {
	return func(yield func([][]byte, error) bool) {
		parser := c.parse(bytes.NewReader(c.data))
		for {
			batch, err := nextBatch(parser)
			if len(batch) > 0 && !yield(batch, nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, badLine(err))
				return
			}
		}
	}
}

// nextBatch collects payloads until a batch is full, or until the error that
// ends the stream.
func nextBatch(parser upload.Parser) ([][]byte, error) {
	var (
		text []byte
		ends []int
		err  error
	)
	for err == nil && len(ends) < batchJobs && len(text) < batchBytes {
		var payload []byte
		if payload, err = parser.Next(); err == nil {
			text = append(text, payload...)
			ends = append(ends, len(text))
		}
	}
	batch := make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		batch[i] = text[start:end:end]
		start = end
	}
	return batch, err
}

// badLine makes a problem of what a parser refused.
func badLine(err error) *problem {
	p := newProblem(http.StatusBadRequest, wire.CodeBadLine, err.Error()+"; nothing of this chunk was taken")
	var line *upload.Error
	if errors.As(err, &line) {
		p.Line = line.Line
	}
	return p
}
