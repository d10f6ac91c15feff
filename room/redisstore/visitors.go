package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

// reasons are the reasons by their numbers in scripts, from 1 on. EVENT_OF in
// lua/room.lua has their events.
var reasons = []room.Reason{"", room.Left, room.Expired, room.Abandoned, room.Revoked, room.Ended, room.Forgotten}

// placeSize is how many integers a place is, as in lua/place.lua.
const placeSize = 7

func revisionOf(terms *room.Terms) string { return strconv.FormatUint(terms.Revision, 10) }

// callTerms returns the arguments, from the third on, of scripts that call, as in
// lua/room.lua, and the tick.
func callTerms(t *room.Terms) []string {
	return []string{
		number(t.Capacity), millis(t.From), millis(t.Until), number(t.Claim.Milliseconds()), number(t.Abandon.Milliseconds()),
		number(t.Away.Milliseconds()), number(t.Events), number(room.KeepGone.Milliseconds()), number(t.Tick),
	}
}

// shares returns the last argument of scripts that call, as in lua/call.lua.
func shares(t *room.Terms) string {
	if t.Shares == [room.MaxLanes]int64{} {
		return noShares
	}
	return strings.Trim(fmt.Sprint(t.Shares), "[]")
}

var noShares = strings.Trim(fmt.Sprint([room.MaxLanes]int64{}), "[]")

// readPlace reads a place of a script, and returns what follows.
func readPlace(n int64, at time.Time, v []int64) (place room.Place, rest []int64, err error) {
	if len(v) > 0 && v[0] <= 0 {
		return room.Place{Number: n, State: room.Waiting, Ahead: -v[0], Now: at}, v[1:], nil
	}
	if len(v) < placeSize {
		return place, nil, fmt.Errorf("redis: a place of visitor %d has %d numbers", n, len(v))
	}
	return room.Place{
		Number: n, State: room.State(v[0]), Ahead: v[1], Drawn: v[2] == 1, Until: timeOf(v[3]), Since: timeOf(v[4]),
		Reason: reasons[v[5]], Lane: int(v[6]), Now: at,
	}, v[placeSize:], nil
}

// enteredLeast is how many integers lua/enter.lua answers for each visitor: a status, the number, 1 for
// a new visitor, and at least one for the place.
const enteredLeast = 3 + 1

// entered is the result of one arrival.
type entered struct {
	place room.Place
	err   error
}

// Enter implements room.Store.
func (s *Store) Enter(ctx context.Context, terms room.Terms, arrival room.Arrival) (room.Place, error) {
	one, err := s.entering.do(ctx, terms.Room, terms, arrival)
	if err != nil {
		return room.Place{}, err
	}
	return one.place, one.err
}

// enterAll lets visitors enter one after the other.
func (s *Store) enterAll(ctx context.Context, terms room.Terms, arrivals []room.Arrival) ([]entered, error) {
	args := append(callTerms(&terms),
		millis(terms.EnterFrom), millis(terms.EnterUntil), millis(terms.DrawUntil), number(terms.MaxWaiting),
		number(terms.TTL.Milliseconds()), flag(terms.Sliding))
	for _, a := range arrivals {
		if a == (room.Arrival{Fingerprint: a.Fingerprint}) {
			args = append(args, fingerprint(a.Fingerprint))
			continue
		}
		args = append(args, "", keyText(a.Key), number(a.Draw), flag(!a.Provisional), fingerprint(a.Fingerprint), strconv.Itoa(a.Lane))
	}
	answer, err := s.operate(ctx, enterScript, terms.Room, revisionOf(&terms), enteredLeast*len(arrivals), append(args, shares(&terms))...)
	if err != nil {
		return nil, err
	}
	all, at, rest := make([]entered, len(arrivals)), time.UnixMilli(answer[0]), answer[1:]
	for i := range all {
		if len(rest) < enteredLeast {
			return nil, fmt.Errorf("redis: the script enter answers %d numbers", len(answer))
		}
		begin := rest
		if all[i].place, rest, err = readPlace(begin[1], at, begin[3:]); err != nil {
			return nil, err
		}
		all[i].err, all[i].place.New = statusErrors[begin[0]], begin[2] == 1
	}
	return all, nil
}

func fingerprint(f room.Fingerprint) string { return strconv.Itoa(int(f)) }

// keyText returns a key for a script: its bytes, or nothing.
func keyText(key room.Key) string {
	if key == (room.Key{}) {
		return ""
	}
	return string(key[:])
}

// asking are the terms of an Ask.
type asking struct {
	terms room.Terms
	claim bool
}

// Ask implements room.Store.
func (s *Store) Ask(ctx context.Context, terms room.Terms, bearers []room.Bearer, claim bool) ([]room.Place, error) {
	if len(bearers) > room.MaxAsk {
		return nil, fmt.Errorf("%d visitors are asked about, at most %d at once", len(bearers), room.MaxAsk)
	}
	if len(bearers) != 1 {
		return s.askAll(ctx, asking{terms, claim}, bearers)
	}
	place, err := s.asking.do(ctx, terms.Room, asking{terms, claim}, bearers[0])
	if err != nil {
		return nil, err
	}
	return []room.Place{place}, nil
}

func (s *Store) askAll(ctx context.Context, of asking, bearers []room.Bearer) ([]room.Place, error) {
	args := make([]string, 0, 3+2*len(bearers))
	args = append(args, flag(of.claim), number(of.terms.TTL.Milliseconds()), flag(of.terms.Sliding))
	for _, b := range bearers {
		args = append(args, number(b.Number), fingerprint(b.Fingerprint))
	}
	answer, err := s.operate(ctx, askScript, of.terms.Room, revisionOf(&of.terms), len(bearers), args...)
	if err != nil {
		return nil, err
	}
	places, at, rest := make([]room.Place, len(bearers)), time.UnixMilli(answer[0]), answer[1:]
	for i := range places {
		if places[i], rest, err = readPlace(bearers[i].Number, at, rest); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// Renew implements room.Store.
func (s *Store) Renew(ctx context.Context, terms room.Terms, bearer room.Bearer) (room.Place, error) {
	answer, err := s.operate(ctx, renewScript, terms.Room, revisionOf(&terms), placeSize,
		number(bearer.Number), number(terms.TTL.Milliseconds()), flag(terms.Sliding), strconv.Itoa(terms.Renewals), fingerprint(bearer.Fingerprint))
	if err != nil && !errors.Is(err, room.ErrNotRenewable) {
		return room.Place{}, err
	}
	place, _, wrong := readPlace(bearer.Number, time.UnixMilli(answer[0]), answer[1:])
	return place, errors.Join(err, wrong)
}

// Leave implements room.Store.
func (s *Store) Leave(ctx context.Context, terms room.Terms, bearer room.Bearer, reason room.Reason) (room.Place, error) {
	code := slices.Index(reasons, reason)
	if code < 1 || reason == room.Forgotten {
		return room.Place{}, fmt.Errorf("nobody leaves for the reason %q", reason)
	}
	answer, err := s.operate(ctx, leaveScript, terms.Room, revisionOf(&terms), placeSize,
		append(callTerms(&terms), number(bearer.Number), strconv.Itoa(code), fingerprint(bearer.Fingerprint), shares(&terms))...)
	if err != nil {
		return room.Place{}, err
	}
	place, _, err := readPlace(bearer.Number, time.UnixMilli(answer[0]), answer[1:])
	return place, err
}

// Find implements room.Store.
func (s *Store) Find(ctx context.Context, terms room.Terms, key room.Key) (int64, error) {
	if key == (room.Key{}) {
		return 0, nil
	}
	answer, err := s.operate(ctx, findScript, terms.Room, revisionOf(&terms), 1, keyText(key))
	if err != nil {
		return 0, err
	}
	return answer[1], nil
}

// Clear implements room.Store. If it is cut short, the next Expire continues.
func (s *Store) Clear(ctx context.Context, terms room.Terms) error {
	for begin := true; ; begin = false {
		answer, err := s.operate(ctx, clearScript, terms.Room, revisionOf(&terms), 1, append(callTerms(&terms), flag(begin), shares(&terms))...)
		if err != nil || answer[1] == 0 {
			return err
		}
	}
}

// Expire implements room.Store.
func (s *Store) Expire(ctx context.Context, terms room.Terms) (room.Due, error) {
	answer, err := s.operate(ctx, expireScript, terms.Room, revisionOf(&terms), 3+statusSize,
		append(callTerms(&terms), number(terms.Calls), number((terms.Abandon+terms.Grace).Milliseconds()),
			terms.Tender, number(terms.Tend.Milliseconds()), number(terms.Late.Milliseconds()), shares(&terms))...)
	if err != nil {
		return room.Due{}, err
	}
	now := time.UnixMilli(answer[0])
	return room.Due{
		Now: now, Next: timeOf(answer[1]), More: answer[2] == 1, Tended: answer[3] == 1, Status: readStatus(now, answer[4:]),
	}, nil
}

// statusSize is how many integers a status is, as in lua/counts.lua.
const statusSize = 11

// readStatus reads a status of a script.
func readStatus(now time.Time, v []int64) room.Status {
	return room.Status{
		Now: now, Waiting: v[0], Inside: v[1], Called: v[2], Entered: v[3], Admitted: v[4], NoShows: v[5],
		Departed: v[6], Expired: v[7], EventsDropped: v[8], Tick: v[9], EventsWaiting: v[10],
	}
}

// Status implements room.Store.
func (s *Store) Status(ctx context.Context, name string) (room.Status, error) {
	v, err := s.operate(ctx, statusScript, name, "", statusSize)
	if err != nil {
		return room.Status{}, err
	}
	return readStatus(time.UnixMilli(v[0]), v[1:]), nil
}
