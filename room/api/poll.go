package api

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/watch"
)

// limit bounds how many run at one time.
type limit struct {
	most int64
	n    atomic.Int64
}

// enter counts one more, and reports whether the bound allows it.
func (l *limit) enter() bool {
	if l.n.Add(1) > l.most {
		l.n.Add(-1)
		return false
	}
	return true
}

func (l *limit) leave() { l.n.Add(-1) }

// me answers with the visitor's place. With wait_ms it answers when there is news:
// the visitor no longer waits, or is at another position than the one in the
// request, by default that at the time of the request.
func (s *server) me(e *edge.Exchange) error {
	ticket, err := bearer(e)
	if err != nil {
		return err
	}
	wait, err := e.Number("wait_ms", MaxWait.Milliseconds())
	if err != nil {
		return err
	}
	position, err := e.Number("position", 1<<53)
	if err != nil {
		return err
	}
	client := s.client(e)
	answer, err := s.engine.Ask(e.R.Context(), e.Path("room"), ticket, client)
	if err == nil && wait > 0 && s.waiters.enter() {
		defer s.waiters.leave()
		if position < 0 {
			position = answer.Position
		}
		answer, err = await(e.R.Context(), answer, position, time.Duration(wait)*time.Millisecond, func(ctx context.Context) (engine.Answer, error) {
			return s.engine.Ask(ctx, e.Path("room"), ticket, client)
		})
	}
	if err != nil {
		return err
	}
	return answerPlace(e, http.StatusOK, &answer)
}

// await asks until there is news, or until the wait or ctx ends: then it returns the
// last answer.
func await(ctx context.Context, answer engine.Answer, position int64, wait time.Duration, ask func(context.Context) (engine.Answer, error)) (engine.Answer, error) {
	over := time.Now().Add(wait)
	for answer.State == room.Waiting && answer.Position == position {
		left := time.Until(over)
		if left <= 0 {
			break
		}
		if !lifecycle.Sleep(ctx, nil, min(watch.Interval(&answer), left)) {
			return answer, nil
		}
		next, err := ask(ctx)
		switch {
		case err == nil:
			answer = next
		case errors.Is(err, room.ErrUnavailable) || ctx.Err() != nil:
			// The place is kept, and the last answer is still current.
		default:
			return engine.Answer{}, err
		}
	}
	return answer, nil
}
