package api

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/watch"
)

// limit counts what may be under way at one time.
type limit struct {
	most int64
	n    atomic.Int64
}

// enter counts one more, if there may be one.
func (l *limit) enter() bool {
	if l.n.Add(1) > l.most {
		l.n.Add(-1)
		return false
	}
	return true
}

func (l *limit) leave() { l.n.Add(-1) }

// me tells a visitor where it is. With wait_ms it answers when there is news: the
// visitor does not wait any more, or not at the position that it says, or that it
// had when the request came.
func (s *server) me(e *exchange) error {
	ticket, err := bearer(e)
	if err != nil {
		return err
	}
	wait, err := e.number("wait_ms", MaxWait.Milliseconds())
	if err != nil {
		return err
	}
	position, err := e.number("position", 1<<53)
	if err != nil {
		return err
	}
	client := s.client(e)
	answer, err := s.engine.Ask(e.r.Context(), e.room, ticket, client)
	if err == nil && wait > 0 && s.waiters.enter() {
		defer s.waiters.leave()
		if position < 0 {
			position = answer.Position
		}
		answer, err = await(e.r.Context(), answer, position, time.Duration(wait)*time.Millisecond, func(ctx context.Context) (room.Answer, error) {
			return s.engine.Ask(ctx, e.room, ticket, client)
		})
	}
	if err != nil {
		return err
	}
	return e.answerPlace(http.StatusOK, &answer)
}

// await asks until there is news, or the wait is over, or ctx: then it returns the
// last answer.
func await(ctx context.Context, answer room.Answer, position int64, wait time.Duration, ask func(context.Context) (room.Answer, error)) (room.Answer, error) {
	over := time.Now().Add(wait)
	for answer.State == room.Waiting && answer.Position == position {
		left := time.Until(over)
		if left <= 0 {
			break
		}
		pause := time.NewTimer(min(watch.Pace(&answer), left))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return answer, nil
		}
		next, err := ask(ctx)
		switch {
		case err == nil:
			answer = next
		case errors.Is(err, room.ErrUnavailable) || ctx.Err() != nil:
			// The place is kept, and the last answer is still the newest.
		default:
			return room.Answer{}, err
		}
	}
	return answer, nil
}
