package api

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/internal/edge"
)

const (
	ndjsonType = "application/x-ndjson"
	csvType    = "text/csv"
)

// parse returns a parser of a chunk. Checked says that another one found no error in it.
type parse func(r io.Reader, checked bool) upload.Parser

// formatOf returns the parser for a content type.
func formatOf(contentType string) (parse, error) {
	name, parameters, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(parameters["charset"])
	if err == nil && (charset == "" || charset == "utf-8") {
		switch name {
		case ndjsonType:
			return func(r io.Reader, checked bool) upload.Parser {
				if checked {
					return upload.NewCheckedNDJSON(r)
				}
				return upload.NewNDJSON(r)
			}, nil
		case csvType:
			return func(r io.Reader, _ bool) upload.Parser { return upload.NewCSV(r) }, nil
		}
	}
	return nil, edge.Refuse(http.StatusUnsupportedMediaType, wire.CodeMediaType,
		fmt.Sprintf("content type %.100q: want %s or %s, in UTF-8", contentType, ndjsonType, csvType))
}

func checkEncoding(encoding string) error {
	switch strings.ToLower(encoding) {
	case "", "identity", "gzip":
		return nil
	}
	return edge.Refuse(http.StatusUnsupportedMediaType, wire.CodeMediaType,
		fmt.Sprintf("content encoding %.100q: want gzip or none", encoding)).Set("Accept-Encoding", "gzip")
}

// readChunk reads a body of at most MaxChunk bytes, also after decompression.
func readChunk(ctx context.Context, to *arrival, body io.Reader, encoding string) error {
	if strings.EqualFold(encoding, "gzip") {
		unpacked, err := gzip.NewReader(io.LimitReader(body, MaxChunk+1))
		if err != nil {
			return unreadable(cmp.Or(to.arrived(), err))
		}
		body = unpacked
	}
	if err := to.readFrom(ctx, body); err != nil {
		return unreadable(err)
	}
	if to.size > MaxChunk {
		return edge.Refuse(http.StatusRequestEntityTooLarge, wire.CodeTooLarge,
			fmt.Sprintf("the chunk has more than %d bytes: send it in smaller ones, each with its Upload-Offset", MaxChunk))
	}
	return nil
}

func unreadable(err error) *edge.Error {
	switch {
	case errors.Is(err, errGaveWay):
		return busy(err.Error() + ": send it again")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return edge.TooSlow()
	}
	return edge.Refuse(http.StatusBadRequest, wire.CodeInvalid, "the body cannot be read: "+err.Error())
}

// chunk is an upload that was read and is not parsed yet.
type chunk struct {
	data  *arrival
	parse parse
}

// nextBatch collects payloads until a batch is full, or until the error that ends the
// stream.
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

// bounded is a parser of a chunk. It fails when the request has ended, or when the payloads
// together are too long.
type bounded struct {
	upload.Parser
	ctx  context.Context
	size int
}

// Next implements upload.Parser.
func (b *bounded) Next() ([]byte, error) {
	payload, err := b.Parser.Next()
	if b.size += len(payload); b.size > maxPayloads {
		return nil, edge.Refuse(http.StatusRequestEntityTooLarge, wire.CodeTooLarge, fmt.Sprintf(
			"the payloads of the chunk have more than %d bytes together, as each row repeats the header: send fewer rows at a time, "+
				"each chunk with its Upload-Offset; nothing of this chunk was stored", maxPayloads))
	}
	return payload, cmp.Or(err, b.ctx.Err())
}

// badLine returns the problem of an error that is of a line that a parser refused.
func badLine(err error) error {
	var line *upload.Error
	if !errors.As(err, &line) {
		return err
	}
	p := edge.Refuse(http.StatusBadRequest, wire.CodeBadLine, err.Error()+"; nothing of this chunk was stored")
	p.Line = line.Line
	return p
}
