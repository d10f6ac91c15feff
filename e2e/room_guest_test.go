package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// keptConn is a connection that stays open between requests, so that a small machine can serve many
// visitors.
type keptConn struct {
	addr   string
	conn   net.Conn
	reader *bufio.Reader
}

// connTimeout bounds one request.
const connTimeout = 10 * time.Second

// do makes one request; an error means that no answer arrived.
func (k *keptConn) do(method, path, ticket, body string) (answer, error) {
	a, err := k.exchange(method, path, ticket, body)
	if err != nil {
		k.close()
	}
	return a, err
}

func (k *keptConn) close() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

func (k *keptConn) exchange(method, path, ticket, body string) (answer, error) {
	if k.conn == nil {
		conn, err := net.DialTimeout("tcp", k.addr, connTimeout)
		if err != nil {
			return answer{}, err
		}
		k.conn, k.reader = conn, bufio.NewReader(conn)
	}
	if err := k.conn.SetDeadline(time.Now().Add(connTimeout)); err != nil {
		return answer{}, err
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		method, path, k.addr, ticket, len(body), body)
	if _, err := io.WriteString(k.conn, request); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(k.reader, nil)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, content}, err
}

// habit is the behaviour of a guest while it waits.
type habit int

const (
	// faithful guests ask as they are told.
	faithful habit = iota
	// vanishing guests stop asking, and never come back.
	vanishing
	// returning guests are silent for a while and then continue.
	returning
)

// guest is a visitor of a crowd. All its times are by the machine's clock, which is also the
// store's. One goroutine at a time owns it.
type guest struct {
	key   string // empty: none
	habit habit
	// polls is the number of answers after which the guest falls silent; silent is for how long.
	polls  int
	silent time.Duration
	stay   time.Duration
	leaves bool // otherwise it stays without leaving explicitly

	due      time.Time // of the next request
	id       int64
	ticket   string
	position int64

	// began is when the first attempt of the present request was sent. sent is when the last
	// answered request was sent: the store knows that the guest asked then, or later. tried is when
	// the last attempt ended, with any result: the guest did not ask after that.
	began, sent, tried time.Time
	told               time.Duration
	// lost means that a request that may have let the guest in was not answered.
	lost bool
	// kept means that the guest kept asking: see crowd.hear.
	kept    bool
	inside  time.Time // when it learned that it is inside
	leaving bool
	gone    string // the reason in the answer
}

// hear processes an answer that has the guest's place.
func (c *crowd) hear(g *guest, v *visitor, sent, received time.Time) {
	if g.ticket == "" {
		g.id, g.kept = v.ID, true
	} else if g.inside.IsZero() && !c.inTime(g, received) {
		g.kept = false
	}
	if v.ID != g.id {
		c.errorf("visitor %d is told that it is %d", g.id, v.ID)
	}
	g.ticket, g.sent, g.lost = v.Ticket, sent, false
	g.told = time.Duration(v.NextPollMS) * time.Millisecond
	if v.Status == "inside" {
		c.hearInside(g, v, received)
		return
	}
	position := v.position()
	if !g.inside.IsZero() || v.Status != "waiting" || position < 1 || g.position > 0 && position > g.position {
		c.errorf("visitor %d is %s at %d, and was at %d, and inside since %v", g.id, v.Status, position, g.position, g.inside)
	}
	if position <= c.plan.near && g.told > c.plan.claim/2 {
		c.errorf("visitor %d is at %d and is to ask again in %v, with a claim window of %v", g.id, position, g.told, c.plan.claim)
	}
	g.position = position
	g.due = received.Add(g.told)
	if g.habit == faithful {
		return
	}
	if g.polls--; g.polls > 0 {
		return
	}
	if g.kept = false; g.habit == vanishing {
		g.due = time.Time{}
		return
	}
	g.habit, g.due = faithful, received.Add(g.silent)
}

// inTime reports whether a waiting guest asked again in time: no later than half a claim window
// after the wait that it was told, plus the time of failures, and within a claim window in any
// case. Then it was in time whenever it was called. The time runs from before the last request was
// sent until this answer arrived, without long outages.
func (c *crowd) inTime(g *guest, received time.Time) bool {
	silence := received.Sub(g.sent) - c.stopped(g.sent, received)
	return silence < min(g.told+c.plan.claim/2, c.plan.claim)
}

func (c *crowd) hearInside(g *guest, v *visitor, received time.Time) {
	if v.Pass == nil || v.Position != nil || v.PassExpiresAt == nil {
		c.errorf("visitor %d is inside: %+v", g.id, v)
	}
	if g.inside.IsZero() {
		g.inside = received
		c.admitted.Add(1)
	}
	g.due = g.inside.Add(g.stay)
	if ask := received.Add(c.plan.ttl / 3); c.plan.slides && ask.Before(g.due) {
		g.due = ask
	}
}

// hearGone processes an answer that the place is gone.
func (c *crowd) hearGone(g *guest, a answer, received time.Time) {
	var problem struct {
		Reason string
		ID     int64
	}
	if err := a.json(&problem); err != nil {
		c.errorf("visitor %d: %v", g.id, err)
	}
	if problem.ID != g.id {
		c.errorf("visitor %d is told that %d is gone", g.id, problem.ID)
	}
	g.gone, g.due = problem.Reason, time.Time{}
	if g.inside.IsZero() && !c.inTime(g, received) { // no server heard of it in time, whatever it tried
		g.kept = false
	}
	// Where this process ran late, a tick may have been late as well, and a stay is counted from the tick.
	late := 2 * time.Duration(c.stall.Load())
	kept := c.plan.abandon + c.plan.grace
	silence := received.Sub(g.sent) - c.stopped(g.sent, received)
	switch {
	case g.gone == "abandoned" && silence < kept:
		c.errorf("visitor %d lost the place after a silence of %v, and it is kept for %v", g.id, silence, kept)
	case g.gone == "abandoned" || g.gone == "left" && g.leaving:
	case g.gone == "expired" && (!g.inside.IsZero() || g.lost || silence > c.plan.ttl-late):
	default:
		c.errorf("visitor %d is told %s", g.id, a.body)
	}
}

// turn makes the guest's due request to a server.
func (c *crowd) turn(g *guest, k *keptConn) {
	if !g.inside.IsZero() && !time.Now().Before(g.inside.Add(g.stay)) {
		if !g.leaves {
			g.due = time.Time{}
			return
		}
		g.leaving = true
	}
	path := "/v1/rooms/" + c.plan.room + "/visitors"
	method, body := "POST", "{}"
	switch {
	case g.leaving:
		method, path, body = "DELETE", path+"/me", ""
	case g.ticket != "":
		method, path, body = "GET", path+"/me", ""
	case g.key != "":
		body = fmt.Sprintf(`{"visitor":%q}`, g.key)
	}
	sent := time.Now()
	// Without a key each attempt to enter creates another visitor.
	if g.began.IsZero() || method == "POST" && g.key == "" {
		g.began = sent
	}
	a, err := k.do(method, path, cmp.Or(g.ticket, "none"), body)
	received := time.Now()
	g.tried = received
	if err != nil || a.status == http.StatusServiceUnavailable {
		c.failed(g, a, err)
		return
	}
	if g.ticket == "" {
		sent = g.began
	}
	g.began = time.Time{}
	switch {
	case method == "DELETE" && a.status == http.StatusNoContent:
		g.due = time.Time{}
	case a.status == http.StatusGone && g.ticket != "":
		c.hearGone(g, a, received)
	case method != "DELETE" && (a.status == http.StatusOK || method == "POST" && a.status == http.StatusCreated):
		var v visitor
		if err := json.Unmarshal(a.body, &v); err != nil {
			c.errorf("%s: %v", a.body, err)
		}
		c.hear(g, &v, sent, received)
	default:
		c.errorf("%s for visitor %d: %d %s", method, g.id, a.status, a.body)
		g.due = time.Time{}
	}
}

// failed lets a guest retry soon, at any server. An answer that the store is away is a failure too.
func (c *crowd) failed(g *guest, a answer, err error) {
	again := 20 * time.Millisecond
	if err == nil {
		again = 200 * time.Millisecond
		c.unavailable.Add(1)
		if a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), `"unavailable"`) {
			c.errorf("visitor %d: %d %s", g.id, a.status, a.body)
		}
	} else {
		c.broken.Add(1)
	}
	if g.ticket == "" {
		c.unknown.Add(1)
	}
	g.lost = true
	g.due = time.Now().Add(again)
}
