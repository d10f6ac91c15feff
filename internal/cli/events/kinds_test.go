package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/topic/broker"
)

// happening is an event of the model, of either part.
type happening struct {
	number, subject int
	at              time.Time
	padding         int
}

// kind is how the events of a part are published.
type kind struct {
	topic string
	open  func(broker *broker.Broker, log *slog.Logger) func(context.Context, []happening) error
	// id and key return the id and the key that the topic's record must have.
	id, key func(happening) string
}

func bulkEvent(h happening) bulk.Event {
	action := fmt.Sprint("action-", h.subject)
	return bulk.Event{
		ID: fmt.Sprint("run-", h.number), Type: bulk.ActionPaused, Subject: action, Action: action, Tenant: "acme", Time: h.at,
		Data: json.RawMessage(`{"x":"` + strings.Repeat("y", h.padding) + `"}`),
	}
}

// roomNotice has no padding: the events of rooms are small.
func roomNotice(h happening) room.Notice {
	return room.Notice{
		Event: room.Event{Sequence: int64(h.number), Type: room.VisitorEntered, Number: int64(h.subject), Time: h.at},
		Room:  "shop", Generation: "run",
	}
}

// publishAs publishes happenings as the events of a part.
func publishAs[E any](p Publisher[E], as func(happening) E) func(context.Context, []happening) error {
	return func(ctx context.Context, happened []happening) error {
		var events []E
		for _, h := range happened {
			events = append(events, as(h))
		}
		return p.Publish(ctx, events)
	}
}

var kinds = map[string]kind{
	"bulk": {
		topic: "sluice.bulk.events",
		open: func(broker *broker.Broker, log *slog.Logger) func(context.Context, []happening) error {
			return publishAs(ForBulk(broker, OwnLog{}, log), bulkEvent)
		},
		id:  func(h happening) string { return bulkEvent(h).ID },
		key: func(h happening) string { return bulkEvent(h).Action },
	},
	"room": {
		topic: "sluice.room.events",
		open: func(broker *broker.Broker, log *slog.Logger) func(context.Context, []happening) error {
			return publishAs(ForRooms(broker, OwnLog{}, log), roomNotice)
		},
		id:  func(h happening) string { n := roomNotice(h); return n.ID() },
		key: func(h happening) string { n := roomNotice(h); return n.Visitor() },
	},
}
