package migrate

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/internal/clusterkey"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Prefix is the common prefix of all paths of both handlers.
const Prefix = "/v1/move/"

// Bounds of the bodies of requests and answers.
const (
	maxJSON   = 64 << 20
	maxFrames = 64 << 20
	// maxPage bounds the entries or items in one answer; a single one may be larger.
	maxPage = 16 << 20
)

// handler is the common part of both handlers.
type handler struct {
	token [sha256.Size]byte // the hash of the bearer token
	log   *slog.Logger
	mux   *http.ServeMux
}

func newHandler(secret string, log *slog.Logger) *handler {
	token := clusterkey.Derive(secret, clusterkey.Migration)
	h := &handler{token: sha256.Sum256([]byte(token)), log: log, mux: http.NewServeMux()}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Del(servedHeader)
		problem{Status: http.StatusNotFound, Code: "not_found", Detail: "this is not served here"}.write(w)
	})
	return h
}

// servedHeader is set in all answers of a handler, to distinguish its "not found" from
// that of a server without a handler.
const servedHeader = "Sluice-Move"

// ServeHTTP serves requests that have the token that is derived from the secret.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(servedHeader, "1")
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if sum := sha256.Sum256([]byte(given)); subtle.ConstantTimeCompare(sum[:], h.token[:]) != 1 {
		problem{Status: http.StatusUnauthorized, Code: codeUnauthorized, Detail: "want the token that is derived from the cluster's secret: use the same secret, and the same version of sluice"}.write(w)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// handle serves a path with a function that returns the answer: nil for none, frames, or
// a value to be encoded as JSON.
func (h *handler) handle(pattern string, serve func(r *http.Request) (any, error)) {
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, max(maxJSON, maxFrames))
		answer, err := serve(r)
		if err != nil {
			p := problemOf(err)
			if p.Code == codeInternal {
				h.log.ErrorContext(r.Context(), "move request failed", "path", r.URL.Path, "error", err)
			}
			p.write(w)
			return
		}
		switch answer := answer.(type) {
		case nil:
			w.WriteHeader(http.StatusNoContent)
		case frames:
			w.Header().Set("Content-Type", framesType)
			_ = answer.write(w) // the client sees that the end is missing
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		}
	})
}

// frames holds entries or items.
type frames struct {
	entries []topic.Entry
	items   []topic.Item
}

func (f frames) write(to io.Writer) error {
	w := &frameWriter{to: to}
	for _, entry := range f.entries {
		w.entry(entry)
	}
	for _, item := range f.items {
		w.item(item)
	}
	return w.end()
}

func readItems(from io.Reader) (items []topic.Item, err error) {
	err = readFrames(from, nil, func(item topic.Item) { items = append(items, item) })
	return items, err
}

func readEntries(from io.Reader) (entries []topic.Entry, err error) {
	err = readFrames(from, func(entry topic.Entry) { entries = append(entries, entry) }, nil)
	return entries, err
}

// invalid returns the error for a malformed request.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFrame, fmt.Sprintf(format, args...))
}

func readJSON(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// number returns a parameter of the query; 0 if it is missing.
func number(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("%s=%q: want a number", name, text)
	}
	return n, nil
}

// attempt is the body of requests that identify an attempt.
type attempt struct {
	Cluster string            `json:"cluster,omitempty"`
	Run     int64             `json:"run"`
	Nodes   []catalog.Address `json:"nodes,omitempty"`
}
