package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Room is a room as the API shows it.
type Room struct {
	Name string    `json:"room"`
	Mode room.Mode `json:"mode"`
	// State is open, queueing, paused or closed.
	State room.Phase `json:"state"`
	// Waiting are in line, Inside have a pass or may claim one.
	Waiting int64 `json:"waiting"`
	Inside  int64 `json:"inside"`
	// AdmittedTotal is how many visitors were let in since the room was created.
	AdmittedTotal int64 `json:"admitted_total"`
	// Outflow is how many visitors are let in per second; nil if not known.
	Outflow *float64 `json:"outflow_per_second"`
	// Found is the capacity or batch in force, where it is "auto".
	Found *int64 `json:"found"`
	// Event is the event that is on, or the next one, where events repeat; else nil.
	Event *room.Occurrence `json:"event"`
	// Settings are not set in a list.
	Settings room.Settings `json:"settings"`
	// JSON is the object as it came.
	JSON json.RawMessage `json:"-"`
}

// Limit returns the capacity (teller) or the batch (park) in force.
func (r *Room) Limit() int64 {
	switch {
	case r.Found != nil:
		return *r.Found
	case r.Mode == room.Park:
		return r.Settings.Batch
	}
	return r.Settings.Capacity
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Room) UnmarshalJSON(text []byte) error {
	type members Room
	var read members
	err := json.Unmarshal(text, &read)
	*r = Room(read)
	r.JSON = append(json.RawMessage{}, text...)
	return err
}

// MarshalJSON implements json.Marshaler: the object as it came.
func (r Room) MarshalJSON() ([]byte, error) { return r.JSON, nil }

// PutRoom creates a room, or replaces its settings. Settings are room.Settings, or JSON
// of the API.
func (c *Client) PutRoom(ctx context.Context, name string, settings any) (r Room, created bool, err error) {
	status, err := c.api.Do(ctx, call{Method: "PUT", Path: at(name), Body: settings}, &r)
	return r, status == http.StatusCreated, err
}

// Room returns one room.
func (c *Client) Room(ctx context.Context, name string) (Room, error) {
	return ask[Room](ctx, c, call{Method: "GET", Path: at(name)})
}

// Rooms returns all rooms, by name.
func (c *Client) Rooms(ctx context.Context) ([]Room, error) {
	var rooms []Room
	for query := (url.Values{}); ; {
		var page struct {
			Rooms []Room `json:"rooms"`
			Next  string `json:"next"`
		}
		_, err := c.api.Do(ctx, call{Method: "GET", Path: at(), Query: query}, &page)
		if rooms = append(rooms, page.Rooms...); err != nil || page.Next == "" {
			return rooms, err
		}
		query = url.Values{"after": {page.Next}}
	}
}

// DeleteRoom removes a room with all its visitors.
func (c *Client) DeleteRoom(ctx context.Context, name string) error {
	return c.do(ctx, call{Method: "DELETE", Path: at(name)})
}

// Pause lets nobody in until Resume.
func (c *Client) Pause(ctx context.Context, name string) (Room, error) {
	return ask[Room](ctx, c, call{Method: "POST", Path: at(name, "pause")})
}

// SoldOut closes a room until Resume, because there is nothing left.
func (c *Client) SoldOut(ctx context.Context, name string) (Room, error) {
	return ask[Room](ctx, c, call{Method: "POST", Path: at(name, "sold-out")})
}

// Resume ends a Pause, and opens a room that was SoldOut.
func (c *Client) Resume(ctx context.Context, name string) (Room, error) {
	return ask[Room](ctx, c, call{Method: "POST", Path: at(name, "resume")})
}

// RevokeAll revokes the passes of all visitors inside. It is not retried after a failed
// connection: that could revoke those of the next visitors.
func (c *Client) RevokeAll(ctx context.Context, name string) error {
	return c.do(ctx, call{Method: "POST", Path: at(name, "revoke"), Once: true})
}

// RevokeTicket ends the visit, or the wait, of a ticket's visitor.
func (c *Client) RevokeTicket(ctx context.Context, name, ticket string) error {
	return c.revoke(ctx, name, map[string]string{"ticket": ticket})
}

// RevokeVisitor ends the visit, or the wait, of the visitor with a key.
func (c *Client) RevokeVisitor(ctx context.Context, name, key string) error {
	return c.revoke(ctx, name, map[string]string{"visitor": key})
}

func (c *Client) revoke(ctx context.Context, name string, whom map[string]string) error {
	return c.do(ctx, call{Method: "POST", Path: at(name, "revoke"), Body: whom})
}

// Place is the answer to a visitor.
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
	// Pass is set if the visitor is inside.
	Pass          string    `json:"pass"`
	PassExpiresAt time.Time `json:"pass_expires_at"`
	Draw          *int64    `json:"draw"`
}

// Enter takes a place. A visitor with a key keeps one place over repeated calls; without
// a key, Enter is not retried after a failure.
func (c *Client) Enter(ctx context.Context, name, visitor string) (Place, error) {
	body := map[string]string{}
	if visitor != "" {
		body["visitor"] = visitor
	}
	return ask[Place](ctx, c, call{Method: "POST", Path: at(name, "visitors"), Body: body, Once: visitor == ""})
}

// EnterWithCode is Enter with a code that MakeCodes has made, in whose lane the visitor is. A code that is
// not valid is an [*Error] with status 403.
func (c *Client) EnterWithCode(ctx context.Context, name, code string) (Place, error) {
	return ask[Place](ctx, c, call{Method: "POST", Path: at(name, "visitors"), Body: map[string]string{"code": code}})
}

// MakeCodes returns so many codes, 1 to 10,000, for visitors of a lane, "" for the last: they are valid until
// the end of the hour of a time. They are not stored: nobody can ask for them again.
func (c *Client) MakeCodes(ctx context.Context, name, lane string, count int, until time.Time) ([]string, error) {
	body := map[string]any{"count": count, "until": until}
	if lane != "" {
		body["lane"] = lane
	}
	answer, err := ask[struct{ Codes []string }](ctx, c, call{Method: "POST", Path: at(name, "codes"), Body: body})
	return answer.Codes, err
}

// RevokeCodes makes all codes of a room void that were made so far.
func (c *Client) RevokeCodes(ctx context.Context, name string) error {
	return c.do(ctx, call{Method: "DELETE", Path: at(name, "codes")})
}

// Ask returns the place of a ticket, and claims it if it was called. If the place is gone
// it returns an [*Error] with status 410.
func (c *Client) Ask(ctx context.Context, name, ticket string) (Place, error) {
	return ask[Place](ctx, c, call{Method: "GET", Path: at(name, "visitors", "me"), Bearer: ticket})
}

// Leave gives up the place of a ticket.
func (c *Client) Leave(ctx context.Context, name, ticket string) error {
	return c.do(ctx, call{Method: "DELETE", Path: at(name, "visitors", "me"), Bearer: ticket})
}

// JWKS returns the public keys that passes are signed with, as a JSON Web Key Set.
func (c *Client) JWKS(ctx context.Context) (json.RawMessage, error) {
	return ask[json.RawMessage](ctx, c, call{Method: "GET", Path: "/.well-known/jwks.json"})
}

// RotateKeys adds a key, which signs tickets and passes from now on; earlier ones stay
// valid. It is not retried after a failed connection: that could add two.
func (c *Client) RotateKeys(ctx context.Context) error {
	return c.do(ctx, call{Method: "POST", Path: "/v1/room-keys/rotate", Once: true})
}

// RevokeKeys replaces all keys by a new one: what the earlier ones signed is not valid any
// more. It is not retried after a failed connection.
func (c *Client) RevokeKeys(ctx context.Context) error {
	return c.do(ctx, call{Method: "POST", Path: "/v1/room-keys/revoke", Once: true})
}

// Lottery holds what is needed to check the lottery of a room.
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
func (c *Client) Lottery(ctx context.Context, name string) (Lottery, error) {
	return ask[Lottery](ctx, c, call{Method: "GET", Path: at(name, "lottery")})
}
