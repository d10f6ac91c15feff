package room

import (
	"encoding/json"
	"fmt"
	"time"
)

// EventType is what happened to a visitor.
type EventType string

// The types. Each visitor enters once, may be admitted and be a no-show any number of
// times, and is gone once: it left, its pass expired, it abandoned its place, or it was
// revoked. A visitor gone as Ended has abandoned.
const (
	VisitorEntered EventType = "entered"
	// VisitorAdmitted: the visitor was called, and is counted as inside from here on.
	VisitorAdmitted EventType = "admitted"
	// VisitorNoShow: the visitor was called, did not claim in time, and waits again.
	VisitorNoShow    EventType = "missed"
	VisitorLeft      EventType = "left"
	VisitorExpired   EventType = "expired"
	VisitorAbandoned EventType = "abandoned"
	VisitorRevoked   EventType = "revoked"
)

// Event is one thing that happened to a visitor, recorded by the operation that did it.
// The events of a room are its whole history: they tell which visitors were inside at any
// moment.
type Event struct {
	// Sequence grows by one with each event of the room; events that were dropped
	// leave gaps.
	Sequence int64
	Type     EventType
	Number   int64
	// Inside reports whether the visitor was called or inside before, and is no more.
	Inside bool
	// Time is the store's.
	Time time.Time
}

// EventSource is the CloudEvents source of all events.
const EventSource = "/sluice/room"

// Notice is an event of a room, to be published.
type Notice struct {
	Event
	Room       string
	Generation string
}

// MaxPublish is how many events are published at once.
const MaxPublish = 1_000

// ID returns the event's ID, unique over all rooms and stores.
func (n *Notice) ID() string {
	return fmt.Sprintf("%s-%d", n.Generation, n.Sequence)
}

// Visitor returns the key by which events of one visitor stay in order.
func (n *Notice) Visitor() string { return fmt.Sprintf("%s/%d", n.Room, n.Number) }

// CloudEvent returns the event in the structured JSON form of CloudEvents 1.0, always the
// same bytes.
func (n *Notice) CloudEvent() ([]byte, error) {
	type data struct {
		Room   string `json:"room"`
		ID     int64  `json:"id"`
		Event  string `json:"event"`
		Inside bool   `json:"was_inside"`
	}
	return json.Marshal(struct {
		SpecVersion     string    `json:"specversion"`
		ID              string    `json:"id"`
		Source          string    `json:"source"`
		Type            string    `json:"type"`
		Subject         string    `json:"subject"`
		Time            time.Time `json:"time"`
		DataContentType string    `json:"datacontenttype"`
		PartitionKey    string    `json:"partitionkey"`
		Data            data      `json:"data"`
	}{
		"1.0", n.ID(), EventSource, "io.sluice.room.visitor." + string(n.Type), n.Visitor(), n.Time.UTC(),
		"application/json", n.Visitor(), data{n.Room, n.Number, string(n.Type), n.Inside},
	})
}
