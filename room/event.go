package room

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// EventType is what happened to a visitor.
type EventType string

// The types. Each visitor enters once; it may be admitted and miss that any number
// of times; and it is gone once: by leaving, by the end of its pass, or by
// abandoning or being revoked. Who is gone as Ended has abandoned.
const (
	VisitorEntered EventType = "entered"
	// VisitorAdmitted: the visitor was called, and is counted as inside from here on.
	VisitorAdmitted EventType = "admitted"
	// VisitorMissed: the visitor was called, did not come in time, and waits again.
	VisitorMissed    EventType = "missed"
	VisitorLeft      EventType = "left"
	VisitorExpired   EventType = "expired"
	VisitorAbandoned EventType = "abandoned"
	VisitorRevoked   EventType = "revoked"
)

// Event is one thing that happened to a visitor, as the move that made it
// recorded it. The events of a room are its whole history: with them, who was
// inside at any moment can be told.
type Event struct {
	// Sequence grows by one with each event of the room; events that were dropped
	// leave gaps.
	Sequence int64
	Type     EventType
	Number   int64
	// Inside says that the visitor was called or inside before, and is not any more.
	Inside bool
	// Time is the store's.
	Time time.Time
}

// EventSource is the source of all events, as CloudEvents have it.
const EventSource = "/sluice/room"

// Notice is an event for others, of a room.
type Notice struct {
	Event
	Room       string
	Generation string
}

// Publisher takes events to where others read them.
type Publisher interface {
	// Publish returns nil when all of them are durable there. Otherwise the same come
	// again in the same order, perhaps with others after them, also after a restart:
	// some may then be there twice, with the same IDs. It is called with one batch at a
	// time, of at most MaxPublish. Ctx ends after 30 s, and when the engine stops.
	Publish(ctx context.Context, notices []Notice) error
}

// MaxPublish is how many events are published at once.
const MaxPublish = 1_000

// ID is the event's own, for ever and over all rooms and stores.
func (n *Notice) ID() string {
	return fmt.Sprintf("%s-%d", n.Generation, n.Sequence)
}

// Visitor is the key by which events of one visitor stay in order.
func (n *Notice) Visitor() string { return fmt.Sprintf("%s/%d", n.Room, n.Number) }

// CloudEvent returns the event in the structured JSON form of CloudEvents 1.0, the
// same whenever it is asked for.
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
