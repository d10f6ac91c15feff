package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Room is a room as the API shows it.
type Room struct {
	Name string
	Mode room.Mode
	// State is open, queueing, paused or closed.
	State room.Phase
	// Waiting are in line, Inside have a pass or may claim one.
	Waiting, Inside int64
	// AdmittedTotal is how many were let in since the room was made.
	AdmittedTotal int64
	// Outflow is how many are let in per second; nil while that is not known.
	Outflow *float64
	// Settings are not there in a list.
	Settings room.Settings
	// JSON is the object as it came.
	JSON json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Room) UnmarshalJSON(text []byte) error {
	var object struct {
		Room          string        `json:"room"`
		Mode          room.Mode     `json:"mode"`
		State         room.Phase    `json:"state"`
		Waiting       int64         `json:"waiting"`
		Inside        int64         `json:"inside"`
		AdmittedTotal int64         `json:"admitted_total"`
		Outflow       *float64      `json:"outflow_per_second"`
		Settings      room.Settings `json:"settings"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	*r = Room{
		Name: object.Room, Mode: object.Mode, State: object.State, Waiting: object.Waiting, Inside: object.Inside,
		AdmittedTotal: object.AdmittedTotal, Outflow: object.Outflow, Settings: object.Settings,
		JSON: append(json.RawMessage{}, text...),
	}
	return nil
}

// MarshalJSON implements json.Marshaler: the object as it came.
func (r Room) MarshalJSON() ([]byte, error) { return r.JSON, nil }

// PutRoom makes a room, or replaces the settings of one. Settings are room.Settings,
// or JSON of the API.
func (c *Client) PutRoom(ctx context.Context, name string, settings any) (r Room, created bool, err error) {
	status, err := c.do(ctx, call{method: "PUT", path: at(name), body: settings}, &r)
	return r, status == http.StatusCreated, err
}

// Room returns one room.
func (c *Client) Room(ctx context.Context, name string) (r Room, err error) {
	_, err = c.do(ctx, call{method: "GET", path: at(name)}, &r)
	return r, err
}

// Rooms returns all rooms, by name.
func (c *Client) Rooms(ctx context.Context) ([]Room, error) {
	var list struct {
		Rooms []Room `json:"rooms"`
	}
	_, err := c.do(ctx, call{method: "GET", path: at()}, &list)
	return list.Rooms, err
}

// DeleteRoom removes a room with all its visitors.
func (c *Client) DeleteRoom(ctx context.Context, name string) error {
	_, err := c.do(ctx, call{method: "DELETE", path: at(name)}, nil)
	return err
}

// Pause lets nobody in until Resume.
func (c *Client) Pause(ctx context.Context, name string) (r Room, err error) {
	_, err = c.do(ctx, call{method: "POST", path: at(name, "pause")}, &r)
	return r, err
}

// Resume ends a Pause.
func (c *Client) Resume(ctx context.Context, name string) (r Room, err error) {
	_, err = c.do(ctx, call{method: "POST", path: at(name, "resume")}, &r)
	return r, err
}

// RevokeAll takes the passes of all who are inside. It is not tried again after a
// failed connection: it could take those of the next.
func (c *Client) RevokeAll(ctx context.Context, name string) error {
	_, err := c.do(ctx, call{method: "POST", path: at(name, "revoke"), once: true}, nil)
	return err
}

// RevokeTicket takes the place of who has a ticket.
func (c *Client) RevokeTicket(ctx context.Context, name, ticket string) error {
	return c.revoke(ctx, name, map[string]string{"ticket": ticket})
}

// RevokeVisitor takes the place of a visitor with a key.
func (c *Client) RevokeVisitor(ctx context.Context, name, key string) error {
	return c.revoke(ctx, name, map[string]string{"visitor": key})
}

func (c *Client) revoke(ctx context.Context, name string, whom map[string]string) error {
	_, err := c.do(ctx, call{method: "POST", path: at(name, "revoke"), body: whom}, nil)
	return err
}

// Place is what a visitor is told.
type Place struct {
	Ticket string `json:"ticket"`
	// ID is the visitor's number in the room.
	ID int64 `json:"id"`
	// Status is waiting, called or inside.
	Status string `json:"status"`
	// Position counts from 1; nil if there is none.
	Position *int64 `json:"position"`
	Ahead    *int64 `json:"ahead"`
	// Wait is nil if it is not known.
	Wait *struct {
		Low  int64 `json:"low"`
		High int64 `json:"high"`
	} `json:"estimated_wait_ms"`
	NextPollMS int64 `json:"next_poll_ms"`
	// Pass is there if the visitor is inside.
	Pass          string    `json:"pass"`
	PassExpiresAt time.Time `json:"pass_expires_at"`
	Draw          *int64    `json:"draw"`
}

// Enter takes a place. With a key, one visitor has one place, whatever often it
// enters; without, it is not tried again after a failure.
func (c *Client) Enter(ctx context.Context, name, visitor string) (p Place, err error) {
	body := map[string]string{}
	if visitor != "" {
		body["visitor"] = visitor
	}
	_, err = c.do(ctx, call{method: "POST", path: at(name, "visitors"), body: body, once: visitor == ""}, &p)
	return p, err
}

// Ask returns the place of a ticket, and claims it if it was called. A place that is
// gone is an [*Error] with status 410.
func (c *Client) Ask(ctx context.Context, name, ticket string) (p Place, err error) {
	_, err = c.do(ctx, call{method: "GET", path: at(name, "visitors", "me"), bearer: ticket}, &p)
	return p, err
}

// Leave gives up the place of a ticket.
func (c *Client) Leave(ctx context.Context, name, ticket string) error {
	_, err := c.do(ctx, call{method: "DELETE", path: at(name, "visitors", "me"), bearer: ticket}, nil)
	return err
}

// JWKS returns the public keys that passes are signed with, as a JSON Web Key Set.
func (c *Client) JWKS(ctx context.Context) (keys json.RawMessage, err error) {
	_, err = c.do(ctx, call{method: "GET", path: "/.well-known/jwks.json"}, &keys)
	return keys, err
}

// RotateKeys adds a key, which signs tickets and passes from now on; those that older
// keys signed stay good. It is not tried again after a failed connection: it could add
// two.
func (c *Client) RotateKeys(ctx context.Context) error {
	_, err := c.do(ctx, call{method: "POST", path: "/v1/room-keys/rotate", once: true}, nil)
	return err
}

// Lottery is what one needs to check the lottery of a room.
type Lottery struct {
	Method room.Method `json:"method"`
	// Commitment is the SHA-256 of the seed, in hexadecimal digits; empty if there is
	// no lottery.
	Commitment string `json:"commitment"`
	// OpensAt is when the seed is shown; zero if the room has no opening.
	OpensAt time.Time `json:"opens_at"`
	// Seed is in hexadecimal digits; empty before the opening.
	Seed string `json:"seed"`
}

// Lottery returns the lottery of a room.
func (c *Client) Lottery(ctx context.Context, name string) (l Lottery, err error) {
	_, err = c.do(ctx, call{method: "GET", path: at(name, "lottery")}, &l)
	return l, err
}
