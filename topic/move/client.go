package move

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// requestMax bounds one request, whatever its context says.
const requestMax = 5 * time.Minute

// Client is a [Source] and a [Target], on a server. An error of the server is the one
// that it met, as far as topic has a name for it; ErrUnavailable if it does not
// answer.
type Client struct {
	base, secret string
	http         *http.Client
	reached      atomic.Bool // it has answered once
}

var (
	_ Source = (*Client)(nil)
	_ Target = (*Client)(nil)
)

// NewClient returns a client of the server at a URL, such as http://host:8080.
func NewClient(base, secret string) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), secret: secret, http: &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 2 * copiesAtOnce, IdleConnTimeout: time.Minute,
	}}}
}

// Close gives up its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// do makes a request, whose body is JSON, or frames, or nothing, and has the answer
// read. A server that has answered before and does not is asked again: every request
// may be made twice.
func (c *Client) do(ctx context.Context, method, path string, body any, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	encoded, kind, err := encode(body)
	if err != nil {
		return err
	}
	began := time.Now()
	for wait := againMin; ; wait = min(2*wait, againWait) {
		err := c.once(ctx, method, path, kind, encoded, read)
		again := errors.Is(err, ErrUnavailable) || errors.Is(err, topic.ErrUncertain)
		if !again || !c.reached.Load() || time.Since(began) > againMax {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// A server is asked again for againMax, which is longer than a cluster takes to
// elect another leader.
const (
	againMin  = 50 * time.Millisecond
	againWait = 2 * time.Second
	againMax  = 20 * time.Second
)

func (c *Client) once(ctx context.Context, method, path, kind string, encoded []byte, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, method, c.base+strings.TrimSuffix(Prefix, "/")+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.secret)
	request.Header.Set("Content-Type", kind)
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer response.Body.Close() // It was only read.
	c.reached.Store(true)
	answer := io.LimitReader(response.Body, max(maxJSON, maxFrames))
	if response.StatusCode >= http.StatusMultipleChoices {
		return c.failure(response, answer)
	}
	if read == nil {
		return nil
	}
	if err := read(answer); err != nil {
		return fmt.Errorf("%w: the answer of %s: %w", ErrUnavailable, c.base, err)
	}
	return nil
}

func encode(body any) (encoded []byte, kind string, err error) {
	switch body := body.(type) {
	case nil:
		return nil, "application/json", nil
	case frames:
		var b bytes.Buffer
		err = body.write(&b)
		return b.Bytes(), framesType, err
	}
	encoded, err = json.Marshal(body)
	return encoded, "application/json", err
}

// failure makes an error of an answer that is none.
func (c *Client) failure(response *http.Response, body io.Reader) error {
	var told problem
	switch err := json.NewDecoder(body).Decode(&told); {
	case response.Header.Get(servedHeader) == "" && response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", c.base, ErrNotServed)
	case response.Header.Get(servedHeader) == "" || err != nil:
		return fmt.Errorf("%s answered %s: is it a sluice server with topics?", c.base, response.Status)
	case told.Code == codeUnauthorized:
		return fmt.Errorf("%s refuses the secret: %s", c.base, told.Detail)
	}
	return told.err()
}

// ErrNotServed says that a server does not take part in moves: it has no secret, or,
// of a source, is one of a cluster, or, of a target, is none.
var ErrNotServed = errors.New("it does not serve this: a server that topics are moved from runs without --cluster and with SLUICE_CLUSTER_SECRET set, one that they are moved to with --cluster")

func into(v any) func(io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(body).Decode(v) }
}

// Inventory implements Source.
func (c *Client) Inventory(ctx context.Context) (inventory topic.Inventory, err error) {
	err = c.do(ctx, http.MethodGet, "/source", nil, into(&inventory))
	return inventory, err
}

// EntryID implements Source.
func (c *Client) EntryID(ctx context.Context, log string, sequence uint64) (id topic.EntryID, err error) {
	err = c.do(ctx, http.MethodGet, "/source/logs/"+url.PathEscape(log)+"/"+strconv.FormatUint(sequence, 10), nil, into(&id))
	return id, err
}

// Entries implements Source.
func (c *Client) Entries(ctx context.Context, log string, from uint64, maxBytes int) (entries []topic.Entry, err error) {
	path := fmt.Sprintf("/source/logs/%s?from=%d&max_bytes=%d", url.PathEscape(log), from, maxBytes)
	err = c.do(ctx, http.MethodGet, path, nil, func(body io.Reader) (err error) {
		entries, err = readEntries(body)
		return err
	})
	return entries, err
}

// Items implements Source.
func (c *Client) Items(ctx context.Context, after string, maxBytes int) (items []topic.Item, err error) {
	path := fmt.Sprintf("/source/items?after=%s&max_bytes=%d", url.QueryEscape(after), maxBytes)
	err = c.do(ctx, http.MethodGet, path, nil, func(body io.Reader) (err error) {
		items, err = readItems(body)
		return err
	})
	return items, err
}

// Fence implements Source.
func (c *Client) Fence(ctx context.Context, cluster string, run int64) error {
	return c.do(ctx, http.MethodPost, "/source/fence", attempt{Cluster: cluster, Run: run}, nil)
}

// Unfence implements Source.
func (c *Client) Unfence(ctx context.Context, cluster string, run int64) error {
	return c.do(ctx, http.MethodPost, "/source/unfence", attempt{Cluster: cluster, Run: run}, nil)
}

// Moved implements Source.
func (c *Client) Moved(ctx context.Context, cluster string, run int64, nodes []topic.Address) error {
	return c.do(ctx, http.MethodPost, "/source/moved", attempt{cluster, run, nodes}, nil)
}

// Begin implements Target.
func (c *Client) Begin(ctx context.Context, request topic.ImportRequest) (status topic.ImportStatus, err error) {
	err = c.do(ctx, http.MethodPost, "/imports", request, into(&status))
	return status, err
}

func importPath(source, rest string) string { return "/imports/" + url.PathEscape(source) + "/" + rest }

// Log implements Target.
func (c *Client) Log(ctx context.Context, source string, run int64, log string, first uint64, anew bool) (at topic.ImportedLog, err error) {
	err = c.do(ctx, http.MethodPost, importPath(source, "logs/"+url.PathEscape(log)), logRequest{run, first, anew}, into(&at))
	return at, err
}

// Append implements Target.
func (c *Client) Append(ctx context.Context, source string, run int64, log string, entries []topic.Entry) (uint64, error) {
	var at appended
	path := importPath(source, "logs/"+url.PathEscape(log)+"?run="+strconv.FormatInt(run, 10))
	err := c.do(ctx, http.MethodPut, path, frames{entries: entries}, into(&at))
	return at.Last, err
}

// Put implements Target.
func (c *Client) Put(ctx context.Context, source string, run int64, items []topic.Item) error {
	return c.do(ctx, http.MethodPut, importPath(source, "items?run="+strconv.FormatInt(run, 10)), frames{items: items}, nil)
}

// Commit implements Target.
func (c *Client) Commit(ctx context.Context, run int64, inventory topic.Inventory) error {
	return c.do(ctx, http.MethodPost, importPath(inventory.Cluster, "commit"), commitRequest{run, inventory}, nil)
}

// Open implements Target.
func (c *Client) Open(ctx context.Context, source string, run int64, topics []topic.Item) ([]topic.Address, error) {
	var at opened
	err := c.do(ctx, http.MethodPost, importPath(source, "open?run="+strconv.FormatInt(run, 10)), frames{items: topics}, into(&at))
	return at.Nodes, err
}

// Abort implements Target.
func (c *Client) Abort(ctx context.Context, source string) (status topic.ImportStatus, err error) {
	err = c.do(ctx, http.MethodPost, importPath(source, "abort"), attempt{}, into(&status))
	return status, err
}

// Clean implements Target.
func (c *Client) Clean(ctx context.Context, source string, run int64) error {
	return c.do(ctx, http.MethodPost, importPath(source, "clean"), attempt{Run: run}, nil)
}
