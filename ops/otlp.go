package ops

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-project/sluice/internal/retry"
)

// The bounds of one request to a collector.
const (
	otlpTimeout   = 10 * time.Second
	otlpMaxAnswer = 4 << 20
)

// otlpRetry bounds the retries of a request that the collector may take later. The
// deadline of the batch, spansTimeout, usually ends them earlier.
var otlpRetry = retry.Policy{Attempts: 10, Base: 5 * time.Second, Cap: 30 * time.Second}

// otlpClient sends spans as OTLP over HTTP. OpenTelemetry's own client does the
// same, but it imports gRPC, which Sluice never uses.
type otlpClient struct {
	endpoint string
	header   http.Header
	gzip     bool
	json     bool
	http     *http.Client
}

var _ otlptrace.Client = (*otlpClient)(nil)

// newOTLPClient returns a client of a collector. It honours the variables
// OTEL_EXPORTER_OTLP_* for headers, certificates, compression, timeout and encoding;
// the given headers replace those of the variables.
func newOTLPClient(endpoint string, headers map[string]string, log *slog.Logger) (*otlpClient, error) {
	c := &otlpClient{endpoint: endpoint, header: http.Header{}}
	c.header.Set("User-Agent", "OTel OTLP Exporter Go/"+otlptrace.Version())
	if len(headers) == 0 {
		headers = otlpHeaders(otlpVariable("HEADERS"), log)
	}
	for name, value := range headers {
		c.header.Set(name, value)
	}
	c.gzip = otlpVariable("COMPRESSION") == "gzip"
	c.json = otlpVariable("PROTOCOL") == "http/json"
	c.header.Set("Content-Type", "application/x-protobuf")
	if c.json {
		c.header.Set("Content-Type", "application/json")
	}
	if c.gzip {
		c.header.Set("Content-Encoding", "gzip")
	}
	timeout := otlpTimeout
	if text := otlpVariable("TIMEOUT"); text != "" {
		if ms, err := strconv.Atoi(text); err != nil {
			log.Warn("tracing: OTEL_EXPORTER_OTLP_TIMEOUT is not a number of milliseconds", "timeout", text)
		} else {
			timeout = time.Duration(ms) * time.Millisecond
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if certificates := otlpCertificates(log); certificates != nil {
		if !strings.HasPrefix(strings.ToLower(endpoint), "https:") {
			return nil, fmt.Errorf("%s: certificates are set in OTEL_EXPORTER_OTLP_*, so want an https URL", endpoint)
		}
		transport.TLSClientConfig = certificates
	}
	c.http = &http.Client{Transport: transport, Timeout: timeout}
	return c, nil
}

// otlpVariable returns a variable of OpenTelemetry: that of traces, or else that of
// all signals.
func otlpVariable(name string) string {
	return cmp.Or(strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name)), strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_"+name)))
}

// otlpHeaders reads name=value pairs that are separated by commas. Values are
// percent-encoded. A pair that is malformed is logged by its number, since it may be
// a secret.
func otlpHeaders(text string, log *slog.Logger) map[string]string {
	headers := map[string]string{}
	if text == "" {
		return headers
	}
	for i, pair := range strings.Split(text, ",") {
		name, encoded, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(encoded)
		if !found || err != nil || !httpguts.ValidHeaderFieldName(name) {
			log.Warn("tracing: OTEL_EXPORTER_OTLP_HEADERS: want name=value", "header", i+1)
			continue
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers
}

// otlpCertificates returns the certificates that the variables name, or nil.
func otlpCertificates(log *slog.Logger) *tls.Config {
	var config tls.Config
	if file := otlpVariable("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New("no certificate in it")
		}
		if err != nil {
			log.Warn("tracing: OTEL_EXPORTER_OTLP_CERTIFICATE", "file", file, "error", err)
		} else {
			config.RootCAs = pool
		}
	}
	certificate, key := otlpVariable("CLIENT_CERTIFICATE"), otlpVariable("CLIENT_KEY")
	if certificate != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			log.Warn("tracing: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "file", certificate, "error", err)
		} else {
			config.Certificates = []tls.Certificate{pair}
		}
	}
	if config.RootCAs == nil && config.Certificates == nil {
		return nil
	}
	return &config
}

// Start implements otlptrace.Client.
func (c *otlpClient) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *otlpClient) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*traces.ResourceSpans) error {
	body, err := c.encode(spans)
	if err != nil {
		return err
	}
	return otlpRetry.Do(ctx, otlpPassing, func(ctx context.Context) error { return c.post(ctx, body) })
}

// encode writes an ExportTraceServiceRequest. On the wire a TracesData is the same,
// and its package needs no gRPC.
func (c *otlpClient) encode(spans []*traces.ResourceSpans) ([]byte, error) {
	request := &traces.TracesData{ResourceSpans: spans}
	var body []byte
	var err error
	if c.json {
		otlpHexIDs(spans)
		body, err = protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(request)
	} else {
		body, err = proto.Marshal(request)
	}
	if err != nil || !c.gzip {
		return body, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// otlpHexIDs replaces each id by the bytes whose base64 is the id in hexadecimal:
// OTLP's JSON has ids in hexadecimal where protobuf's has base64.
func otlpHexIDs(spans []*traces.ResourceSpans) {
	id := func(b *[]byte) { *b, _ = base64.StdEncoding.DecodeString(hex.EncodeToString(*b)) }
	for _, resource := range spans {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id(&span.TraceId)
				id(&span.SpanId)
				id(&span.ParentSpanId)
				for _, link := range span.GetLinks() {
					id(&link.TraceId)
					id(&link.SpanId)
				}
			}
		}
	}
}

// otlpRefusalError is the answer of a collector that does not take a request now.
type otlpRefusalError struct {
	error
	after time.Duration
}

// otlpPassing reports whether an error is transient, and the delay that the collector
// asks for.
func otlpPassing(err error) (time.Duration, bool) {
	if refusal, ok := errors.AsType[*otlpRefusalError](err); ok {
		return refusal.after, true
	}
	broken, ok := errors.AsType[*url.Error](err)
	return 0, ok && broken.Temporary()
}

// otlpLater are the status codes that OTLP says to retry.
var otlpLater = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// post makes one request.
func (c *otlpClient) post(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = maps.Clone(c.header)
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, otlpMaxAnswer+1))
	if err != nil {
		return err
	}
	if len(text) > otlpMaxAnswer {
		return fmt.Errorf("%s: the answer has more than %d bytes", c.endpoint, otlpMaxAnswer)
	}
	if answer.StatusCode/100 == 2 {
		return otlpRejected(answer.Header.Get("Content-Type"), text)
	}
	err = fmt.Errorf("%s: %s: %s", c.endpoint, answer.Status, cmp.Or(strings.TrimSpace(string(text)), "(empty)"))
	if slices.Contains(otlpLater, answer.StatusCode) {
		return &otlpRefusalError{err, otlpAfter(answer.Header.Get("Retry-After"))}
	}
	return err
}

// otlpAfter reads a Retry-After: seconds, or a time.
func otlpAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// otlpRejected reads an ExportTraceServiceResponse, and returns an error if the
// collector rejected spans or sent a warning. An answer of another type is ignored.
func otlpRejected(contentType string, answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	var rejected, message string
	switch contentType {
	case "application/x-protobuf":
		partial := protoFields(protoFields(answer)[1].text)
		message = string(partial[2].text)
		if n := partial[1].number; n != 0 {
			rejected = strconv.FormatUint(n, 10)
		}
	case "application/json":
		var decoded struct {
			PartialSuccess struct {
				RejectedSpans json.RawMessage `json:"rejectedSpans"` // a number, or a string of one
				ErrorMessage  string          `json:"errorMessage"`
			} `json:"partialSuccess"`
		}
		if err := json.Unmarshal(answer, &decoded); err != nil {
			return fmt.Errorf("the collector's answer: %w", err)
		}
		message = decoded.PartialSuccess.ErrorMessage
		rejected = strings.TrimPrefix(strings.Trim(string(decoded.PartialSuccess.RejectedSpans), `"`), "0")
	}
	if rejected == "" && message == "" {
		return nil
	}
	return fmt.Errorf("the collector rejected %s spans: %s", cmp.Or(rejected, "0"), message)
}

// protoField is the value of a field: one of the two.
type protoField struct {
	number uint64
	text   []byte
}

// protoFields returns the fields of a message by their numbers, as far as it can be
// read.
func protoFields(message []byte) map[protowire.Number]protoField {
	fields := map[protowire.Number]protoField{}
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			break
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
			break
		}
		var field protoField
		switch kind {
		case protowire.VarintType:
			field.number, _ = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			field.text, _ = protowire.ConsumeBytes(message)
		}
		fields[number] = field
		message = message[size:]
	}
	return fields
}
