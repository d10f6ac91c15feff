package migrate

import (
	"bytes"
	"context"
	"crypto/tls"
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

	"github.com/sluice-project/sluice/internal/clusterkey"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// requestMax bounds one request, whatever its context says.
const requestMax = 5 * time.Minute

// Client is a [Source] and a [Target] on a server. It returns the server's errors as
// errors of package topic where that has one, and ErrUnavailable if the server does not
// answer.
type Client struct {
	base, token string
	http        *http.Client
	reached     atomic.Bool // it has answered once
}

var (
	_ Source = (*Client)(nil)
	_ Target = (*Client)(nil)
)

// NewClient returns a client of the server at a URL, such as http://host:8080. It sends a
// token that is derived from the cluster's secret, never the secret. At https, it trusts and shows
// what secure says; nil: the authorities of the system, and no certificate.
func NewClient(base, secret string, secure *tls.Config) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), token: clusterkey.Derive(secret, clusterkey.Migration), http: &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, MaxIdleConnsPerHost: 2 * copiesAtOnce, IdleConnTimeout: time.Minute,
	}}}
}

// Close closes its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// do makes a request, whose body is JSON, frames, or nothing, and calls read with the
// answer. If a server that has answered before does not answer, do repeats the request:
// all requests are idempotent.
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

// againMax bounds the repetitions of a request: longer than a cluster takes to elect
// another leader.
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
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", kind)
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer response.Body.Close() // it was only read
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

// failure returns the error of an answer that reports one.
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

// ErrNotServed reports that a server does not take part in migrations: it has no secret,
// or it is a source and belongs to a cluster, or it is a target and does not.
var ErrNotServed = errors.New("it does not serve this: a server that topics are moved from runs without --cluster and with SLUICE_CLUSTER_SECRET set, one that they are moved to with --cluster")

func into(v any) func(io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(body).Decode(v) }
}

// Inventory implements Source.
func (c *Client) Inventory(ctx context.Context) (inventory Inventory, err error) {
	err = c.do(ctx, http.MethodGet, "/source?"+compactedQuery, nil, into(&inventory))
	return inventory, err
}

// EntryID implements Source.
func (c *Client) EntryID(ctx context.Context, log string, sequence uint64) (id EntryID, err error) {
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
func (c *Client) Moved(ctx context.Context, cluster string, run int64, nodes []catalog.Address) error {
	return c.do(ctx, http.MethodPost, "/source/moved", attempt{cluster, run, nodes}, nil)
}

// Begin implements Target.
func (c *Client) Begin(ctx context.Context, request ImportRequest) (status ImportStatus, err error) {
	err = c.do(ctx, http.MethodPost, "/imports", request, into(&status))
	return status, err
}

func importPath(source, rest string) string { return "/imports/" + url.PathEscape(source) + "/" + rest }

// Log implements Target.
func (c *Client) Log(ctx context.Context, source string, run int64, log string, first uint64, restart bool) (at ImportedLog, err error) {
	err = c.do(ctx, http.MethodPost, importPath(source, "logs/"+url.PathEscape(log)), logRequest{run, first, restart}, into(&at))
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
func (c *Client) Commit(ctx context.Context, run int64, inventory Inventory) error {
	return c.do(ctx, http.MethodPost, importPath(inventory.Cluster, "commit"), commitRequest{run, inventory}, nil)
}

// Open implements Target.
func (c *Client) Open(ctx context.Context, source string, run int64, topics []topic.Item) ([]catalog.Address, error) {
	var at opened
	err := c.do(ctx, http.MethodPost, importPath(source, "open?run="+strconv.FormatInt(run, 10)), frames{items: topics}, into(&at))
	return at.Nodes, err
}

// Abort implements Target.
func (c *Client) Abort(ctx context.Context, source string) (status ImportStatus, err error) {
	err = c.do(ctx, http.MethodPost, importPath(source, "abort"), attempt{}, into(&status))
	return status, err
}

// Clean implements Target.
func (c *Client) Clean(ctx context.Context, source string, run int64) error {
	return c.do(ctx, http.MethodPost, importPath(source, "clean"), attempt{Run: run}, nil)
}
