package e2e

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// visitor is an answer to a visitor, as the contract defines it.
type visitor struct {
	Ticket        string     `json:"ticket"`
	ID            int64      `json:"id"`
	Status        string     `json:"status"`
	Position      *int64     `json:"position"`
	Ahead         *int64     `json:"ahead"`
	NextPollMS    int64      `json:"next_poll_ms"`
	Pass          *string    `json:"pass"`
	PassExpiresAt *time.Time `json:"pass_expires_at"`
}

// position returns 0 for visitors without one.
func (v *visitor) position() int64 {
	if v.Position == nil {
		return 0
	}
	return *v.Position
}

// roomView is an answer to an operator, as the contract defines it.
type roomView struct {
	Room          string   `json:"room"`
	Mode          string   `json:"mode"`
	State         string   `json:"state"`
	Waiting       int64    `json:"waiting"`
	Inside        int64    `json:"inside"`
	AdmittedTotal int64    `json:"admitted_total"`
	Outflow       *float64 `json:"outflow_per_second"`
}

func (s *server) room(name string) (v roomView) {
	s.t.Helper()
	s.call("GET", "/v1/rooms/"+name, "", http.StatusOK, &v)
	return v
}

// enter takes a place in a room; key may be empty.
func (s *server) enter(name, key string, status int) (v visitor) {
	s.t.Helper()
	body := "{}"
	if key != "" {
		body = fmt.Sprintf(`{"visitor":%q}`, key)
	}
	s.call("POST", "/v1/rooms/"+name+"/visitors", body, status, &v)
	return v
}

// me makes a visitor's request about its own place.
func (s *server) me(method, name, ticket string) answer {
	s.t.Helper()
	a, err := s.do(method, "/v1/rooms/"+name+"/visitors/me", "", nil, "Authorization", "Bearer "+ticket)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// ask returns the place of a ticket, which must exist.
func (s *server) ask(name, ticket string) (v visitor) {
	s.t.Helper()
	a := s.me("GET", name, ticket)
	if a.status != http.StatusOK {
		s.t.Fatalf("ask: %d %s", a.status, a.body)
	}
	if err := a.json(&v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// states are the kinds of state of a server, as arguments of serve. The tag redis adds a real
// Redis.
var states = map[string]func(t *testing.T) []string{"embedded": func(*testing.T) []string { return nil }}

// onEachState runs a test with each of states.
func onEachState(t *testing.T, test func(t *testing.T, s *server)) {
	for name, args := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startServer(t, args(t)...))
		})
	}
}

const tellerOfTwo = `{"mode":"teller","capacity":2,"pass_ttl_ms":600000}`

// The contract of room holds, as a client such as curl sees it.
func TestRoomContract(t *testing.T) {
	t.Parallel()
	onEachState(t, func(t *testing.T, s *server) {
		s.call("PUT", "/v1/rooms/shop", tellerOfTwo, http.StatusCreated, nil)
		s.call("PUT", "/v1/rooms/shop", tellerOfTwo, http.StatusOK, nil)
		s.call("PUT", "/v1/rooms/shop", `{"mode":"teller"}`, http.StatusUnprocessableEntity, nil)
		s.call("GET", "/v1/rooms/none", "", http.StatusNotFound, nil)

		a, b := s.enter("shop", "alice", http.StatusCreated), s.enter("shop", "", http.StatusCreated)
		c, d := s.enter("shop", "", http.StatusCreated), s.enter("shop", "dora", http.StatusCreated)
		for _, inside := range []visitor{a, b} {
			if inside.Status != "inside" || inside.Pass == nil || inside.Position != nil || inside.PassExpiresAt == nil {
				t.Errorf("who came first: %+v, want inside with a pass", inside)
			}
		}
		if c.Status != "waiting" || c.position() != 1 || *c.Ahead != 0 || c.Pass != nil || d.position() != 2 || c.NextPollMS <= 0 || c.NextPollMS > 5000 {
			t.Errorf("who came then: %+v and %+v", c, d)
		}
		if again := s.enter("shop", "dora", http.StatusOK); again.ID != d.ID || again.position() != 2 {
			t.Errorf("the same key has %+v, want the place that it has", again)
		}
		if v := s.room("shop"); v.Room != "shop" || v.Mode != "teller" || v.State != "queueing" || v.Waiting != 2 || v.Inside != 2 || v.AdmittedTotal != 2 {
			t.Errorf("the room is %+v", v)
		}
		s.checkPass(t, *a.Pass, "shop")
		s.checkWatch(t, "shop", d.Ticket)

		if left := s.me("DELETE", "shop", a.Ticket); left.status != http.StatusNoContent {
			t.Errorf("leaving: %d %s", left.status, left.body)
		}
		if gone := s.me("GET", "shop", a.Ticket); gone.status != http.StatusGone || !strings.Contains(string(gone.body), "left") {
			t.Errorf("who has left is told %d %s", gone.status, gone.body)
		}
		if c = s.ask("shop", c.Ticket); c.Status != "inside" {
			t.Errorf("the next is %+v, want inside", c)
		}
		if d = s.ask("shop", d.Ticket); d.position() != 1 {
			t.Errorf("the last is %+v, want position 1", d)
		}

		s.call("POST", "/v1/rooms/shop/pause", "", http.StatusOK, nil)
		s.me("DELETE", "shop", b.Ticket)
		if d = s.ask("shop", d.Ticket); d.Status != "waiting" || s.room("shop").State != "paused" {
			t.Errorf("in a room that is paused: %+v", d)
		}
		s.call("POST", "/v1/rooms/shop/resume", "", http.StatusOK, nil)
		until.True(t, "the last is let in", func() bool { return s.ask("shop", d.Ticket).Status == "inside" })

		if a, err := s.do("POST", "/v1/rooms/shop/revoke", "", nil); err != nil || a.status >= 300 {
			t.Errorf("revoke: %v %d %s", err, a.status, a.body)
		}
		if gone := s.me("GET", "shop", d.Ticket); gone.status != http.StatusGone || !strings.Contains(string(gone.body), "revoked") {
			t.Errorf("who was revoked is told %d %s", gone.status, gone.body)
		}
		if forged := s.me("GET", "shop", forge(c.Ticket)); forged.status != http.StatusUnauthorized {
			t.Errorf("a forged ticket: %d %s", forged.status, forged.body)
		}
	})
}

// forge changes one character of a ticket's signature. It is not the last one: decoders ignore some
// of its bits.
func forge(ticket string) string {
	at := len(ticket) - 4
	other := "A"
	if ticket[at] == 'A' {
		other = "B"
	}
	return ticket[:at] + other + ticket[at+1:]
}

// checkPass verifies a pass as another service would, with the public keys alone.
func (s *server) checkPass(t *testing.T, pass, name string) {
	t.Helper()
	var set struct {
		Keys []struct{ Kid, X string }
	}
	s.call("GET", "/.well-known/jwks.json", "", http.StatusOK, &set)
	parts := strings.Split(pass, ".")
	if len(parts) != 3 {
		t.Fatalf("the pass %q is no JWT", pass)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(set.Keys, func(key struct{ Kid, X string }) bool {
		public, err := base64.RawURLEncoding.DecodeString(key.X)
		return err == nil && ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), signature)
	}) {
		t.Errorf("none of %d keys verifies the pass", len(set.Keys))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Room string
		Exp  float64
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	if life := time.Until(time.UnixMilli(int64(claims.Exp * 1000))); claims.Room != name || life <= 0 || life > time.Minute+time.Second {
		t.Errorf("the pass says %s", text)
	}
}

// checkWatch reads the first event of a stream.
func (s *server) checkWatch(t *testing.T, name, ticket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/v1/rooms/"+name+"/visitors/me/watch"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+ticket)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("watch: %d %s", response.StatusCode, kind)
	}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data:")
		if !is {
			continue
		}
		var v visitor
		if err := json.Unmarshal([]byte(data), &v); err != nil || v.position() != 2 {
			t.Errorf("the first event is %q, want position 2 (%v)", data, err)
		}
		return
	}
	t.Error("no event came")
}

// In mode park each tick lets in its batch, and all visitors are out after their stay.
func TestRoomPark(t *testing.T) {
	t.Parallel()
	onEachState(t, func(t *testing.T, s *server) {
		s.call("PUT", "/v1/rooms/fair", `{"mode":"park","batch":3,"interval_ms":400,"stay_ms":1500}`, http.StatusCreated, nil)
		var tickets []string
		for range 7 {
			tickets = append(tickets, s.enter("fair", "", http.StatusCreated).Ticket)
		}
		was := make([]bool, len(tickets))
		out := map[int]bool{}
		until.True(t, "everybody was in and is out", func() bool {
			for i, ticket := range tickets {
				a := s.me("GET", "fair", ticket)
				var v visitor
				if a.status == http.StatusGone {
					out[i] = true
				} else if err := a.json(&v); err != nil {
					t.Fatal(err)
				}
				was[i] = was[i] || v.Status == "inside"
			}
			return len(out) == len(tickets)
		})
		if slices.Contains(was, false) {
			t.Errorf("inside were %v, want all", was)
		}
		until.True(t, "the room is empty", func() bool {
			v := s.room("fair")
			return v.AdmittedTotal == 7 && v.Inside == 0 && v.Waiting == 0
		})
	})
}

// The server is killed while visitors wait. After the restart everybody has the same place, and the
// tickets still work.
func TestRoomSurvivesAKill(t *testing.T) {
	t.Parallel()
	count := 3_000
	if long() {
		count = 100_000
	}
	s := newServer(t)
	s.start()
	s.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":2,"abandon_after_ms":3600000}`, http.StatusCreated, nil)
	before := make([]visitor, count)
	s.each(count, func(n int) { before[n] = s.enter("shop", "", http.StatusCreated) })
	s.each(count, func(n int) { before[n] = s.ask("shop", before[n].Ticket) })
	s.kill()
	s.start()
	positions := make([]int64, count)
	s.each(count, func(n int) {
		now := s.ask("shop", before[n].Ticket)
		positions[n] = now.position()
		if now.ID != before[n].ID || now.Status != before[n].Status || now.position() != before[n].position() {
			t.Errorf("visitor %d is %s at %d after the start, and was %s at %d", now.ID, now.Status, now.position(), before[n].Status, before[n].position())
		}
	})
	slices.Sort(positions)
	if positions[0] != 0 || positions[1] != 0 || positions[2] != 1 || positions[count-1] != int64(count-2) {
		t.Errorf("the positions are %v … %v, want two inside and a line of %d", positions[:3], positions[count-3:], count-2)
	}
}

// each calls f for 0 to count-1, several at a time.
func (s *server) each(count int, f func(n int)) {
	s.t.Helper()
	var group sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		group.Go(func() {
			for n := range numbers {
				if !s.t.Failed() {
					f(n)
				}
			}
		})
	}
	for n := range count {
		numbers <- n
	}
	close(numbers)
	group.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// The topic of events has every event of visitors once, those of a visitor in order, over a kill.
func TestRoomEventsAreInTheTopic(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--topic-partitions", "3")
	s.start()
	s.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`, http.StatusCreated, nil)
	const count = 300
	for n := range count {
		v := s.enter("shop", "", http.StatusCreated)
		s.me("DELETE", "shop", v.Ticket)
		if n == count/2 {
			s.kill()
			s.start()
		}
	}
	until.True(t, "all events are in the topic", func() bool {
		return len(readTopic(t, s.kafka, "sluice.room.events")) >= 3*count
	})
	entersAndLeaves(t, s.kafka, count)
}

// entersAndLeaves checks that the topic has each event once, and that so many visitors have entered, were
// admitted and have left.
func entersAndLeaves(t *testing.T, brokers string, count int) {
	t.Helper()
	ids, of := map[string]bool{}, map[string][]string{}
	for _, record := range readTopic(t, brokers, "sluice.room.events") {
		var e struct{ ID, Type, Subject string }
		if err := json.Unmarshal(record.Value, &e); err != nil {
			t.Fatal(err)
		}
		if ids[e.ID] {
			t.Errorf("event %s is there twice", e.ID)
		}
		ids[e.ID] = true
		of[e.Subject] = append(of[e.Subject], strings.TrimPrefix(e.Type, "io.sluice.room.visitor."))
	}
	if len(of) != count {
		t.Errorf("%d visitors have events, want %d", len(of), count)
	}
	for subject, types := range of {
		if !slices.Equal(types, []string{"entered", "admitted", "left"}) {
			t.Errorf("%s has %v", subject, types)
		}
	}
}
