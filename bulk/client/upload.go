package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/jsonclient"
)

// Source yields the payloads of an upload, each one JSON value; io.EOF ends it. A payload is
// valid until the next call. The parsers of package upload are sources.
type Source interface {
	Next() (payload []byte, err error)
}

// chunkLimits are the maximum of jobs and bytes of one chunk. A larger payload is sent alone.
type chunkLimits struct{ jobs, size int }

// Upload sends the payloads of a source, which begins with the action's first job, in chunks.
// It skips payloads that the server has, so an interrupted upload continues when it is called
// again with the same jobs. It returns the number of jobs that the server has, for Seal. An
// error of the source ends the upload; the present chunk is not sent.
func (c *Client) Upload(ctx context.Context, id string, source Source) (received int64, err error) {
	action, err := c.Action(ctx, id)
	if err != nil {
		return 0, err
	}
	received = action.Received
	for position, more := int64(0), true; more; {
		chunk, sourceErr := c.collect(source)
		if sourceErr != nil && !errors.Is(sourceErr, io.EOF) {
			return received, sourceErr
		}
		more = sourceErr == nil
		end := position + int64(len(chunk))
		if end > received {
			skipped := max(0, received-position)
			received, err = c.UploadChunk(ctx, id, position+skipped, chunk[skipped:])
			if err != nil {
				return received, err
			}
		}
		position = end
		if !more && received > position {
			return received, fmt.Errorf("the server has %d jobs of action %q, but the source only %d: they are not the same upload", received, id, position)
		}
	}
	return received, nil
}

// collect reads payloads until a chunk is full or the source ends. It removes line breaks
// from each.
func (c *Client) collect(source Source) (chunk [][]byte, err error) {
	for size := 0; len(chunk) < c.chunk.jobs && size < c.chunk.size; {
		payload, err := source.Next()
		if err != nil {
			return chunk, err
		}
		line, err := oneLine(payload)
		if err != nil {
			return chunk, err
		}
		chunk = append(chunk, line)
		size += len(line) + 1
	}
	return chunk, nil
}

// oneLine returns a copy of a payload without line breaks.
func oneLine(payload []byte) ([]byte, error) {
	if !bytes.ContainsAny(payload, "\r\n") {
		return bytes.Clone(payload), nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, payload); err != nil {
		return nil, fmt.Errorf("payload %.100q: %w", payload, err)
	}
	return line.Bytes(), nil
}

// UploadChunk sends payloads, each on one line, that begin at an offset: the number of
// earlier jobs of the action. After a failed connection it asks the server how many jobs it
// has, and continues from there. It returns the number of jobs that the server has, as far as
// it is known.
func (c *Client) UploadChunk(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	received = offset
	rest := payloads
	err = c.api.Retry.Do(ctx, jsonclient.Transient, func(ctx context.Context) error {
		var answer wire.Received
		err := c.sendChunk(ctx, id, received, rest, &answer)
		if err == nil {
			received, rest = answer.Received, nil
			return nil
		}
		if _, ok := jsonclient.Transient(err); !ok {
			received = receivedBefore(err, received)
			return err
		}
		// The server may have the chunk, or its first part: the next attempt continues.
		action, askErr := c.actionOnce(ctx, id)
		if askErr != nil {
			return err
		}
		if action.Received < received {
			return fmt.Errorf("the server has %d jobs of action %q, fewer than the %d it had before: %w", action.Received, id, received, errLost)
		}
		sent := min(action.Received-received, int64(len(rest)))
		received, rest = received+sent, rest[sent:]
		if len(rest) == 0 {
			received = action.Received
			return nil
		}
		return err
	})
	return received, err
}

// receivedBefore returns the number of jobs that the server had received when it refused
// more.
func receivedBefore(err error, received int64) int64 {
	var refused *Error
	if errors.As(err, &refused) && refused.Received != nil {
		return max(received, *refused.Received)
	}
	return received
}

// errLost is an error that a retry cannot help.
var errLost = errors.New("it was set back")

func (c *Client) actionOnce(ctx context.Context, id string) (action wire.Action, err error) {
	api := *c.api
	api.Retry.Attempts = 1
	return (&Client{api: &api}).Action(ctx, id)
}

// sendChunk makes one attempt to send payloads.
func (c *Client) sendChunk(ctx context.Context, id string, offset int64, payloads [][]byte, into *wire.Received) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	body := append(bytes.Join(payloads, []byte{'\n'}), '\n')
	request, err := c.api.Request(ctx, call{Method: http.MethodPost, Path: at("actions", id, "jobs")}, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	request.Header.Set("Upload-Offset", strconv.FormatInt(offset, 10))
	_, err = c.api.Answer(request, into)
	return err
}
