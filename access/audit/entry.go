package audit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-project/sluice/access"
)

// The bounds of one entry.
const (
	// MaxText is the most bytes of each text.
	MaxText = 256
	// MaxResources is the most resources; the last text says how many more there are.
	MaxResources = 8
)

// Outcome is what became of a request.
type Outcome string

// The outcomes.
const (
	// Allowed requests have succeeded.
	Allowed Outcome = "allowed"
	// Refused requests lack a right, or name what is beyond the limits of their token.
	Refused Outcome = "refused"
	// Unauthenticated requests show no valid token.
	Unauthenticated Outcome = "unauthenticated"
	// Failed requests were allowed, and have not, or not fully, succeeded: Code says why.
	Failed Outcome = "failed"
)

// The edges.
const (
	HTTP   = "http"
	Kafka  = "kafka"
	Server = "server"
)

// Entry is a line of the trail.
type Entry struct {
	// ID is unique: the run of the server, and the number of the entry in it. The trail sets it, and Time and Node.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	Edge string    `json:"edge"`
	// Token is the name of the token, and TokenID its id; both are empty for somebody unknown.
	Token   string `json:"token"`
	TokenID string `json:"token_id,omitempty"`
	// Address is that of the client, without a port.
	Address string `json:"address,omitempty"`
	// Operation is the id of an HTTP operation or the pattern of a path, the name of a Kafka request, or "start", "stop"
	// or "lost" of the server.
	Operation string `json:"operation"`
	// Resources are what the request names.
	Resources []string `json:"resources,omitempty"`
	Outcome   Outcome  `json:"outcome"`
	// Code is the status of HTTP, or the error of the Kafka protocol.
	Code string `json:"code,omitempty"`
	// Count is how many entries this one stands for: further refusals of the same address and token of which this was
	// the last, or lost entries. 0 is one.
	Count int `json:"count,omitempty"`
	// Settings is the SHA-256 of the settings that the server has started with, without secrets.
	Settings string `json:"settings,omitempty"`
}

// By returns the entry with who it is about; nil is somebody unknown, or a server without accounts.
func (e Entry) By(p *access.Principal) Entry {
	if p != nil {
		e.Token, e.TokenID = p.Name, p.ID
	}
	return e
}

var secret = regexp.MustCompile(regexp.QuoteMeta(access.Prefix) + `[A-Za-z0-9_-]{16,}`)

// clean bounds the texts, and hides secrets that a request has in the wrong place.
func (e *Entry) clean() {
	for _, text := range []*string{&e.Operation, &e.Token, &e.Address, &e.Code} {
		*text = cleaned(*text)
	}
	kept := make([]string, 0, min(len(e.Resources), MaxResources))
	for i, name := range e.Resources {
		if i == MaxResources-1 && len(e.Resources) > MaxResources {
			kept = append(kept, fmt.Sprintf("and %d more", len(e.Resources)-i))
			break
		}
		kept = append(kept, cleaned(name))
	}
	e.Resources = kept
}

func cleaned(text string) string {
	text = text[:min(len(text), 2*MaxText)]
	text = secret.ReplaceAllString(text, access.Prefix+"(hidden)")
	return strings.ToValidUTF8(text[:min(len(text), MaxText)], "")
}

// EventSource is the CloudEvents source of published entries.
const EventSource = "/sluice/audit"

// CloudEvent returns the entry as a CloudEvent in JSON.
func (e *Entry) CloudEvent() ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion     string    `json:"specversion"`
		ID              string    `json:"id"`
		Source          string    `json:"source"`
		Type            string    `json:"type"`
		Time            time.Time `json:"time"`
		DataContentType string    `json:"datacontenttype"`
		PartitionKey    string    `json:"partitionkey"`
		Data            *Entry    `json:"data"`
	}{"1.0", e.ID, EventSource, "io.sluice.audit." + string(e.Outcome), e.Time, "application/json", e.Run(), e})
}

// Run returns the run of the server, whose entries stay in order.
func (e *Entry) Run() string {
	run, _, _ := strings.Cut(e.ID, "-")
	return run
}
