package api

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// letterList collects one page of dead letters from one action or from many.
// Its cursor is the id of the last job that was looked at.
type letterList struct {
	engine Engine
	in     *inDeadLetters
	page   *wire.DeadLetters
}

func (l *letterList) fill(ctx context.Context) error {
	action, from, err := l.cursor()
	if err != nil {
		return err
	}
	if action != "" {
		full, err := l.collect(ctx, action, from)
		if err != nil || full || l.in.Action != "" {
			return err
		}
	}
	actions, err := l.engine.Actions(ctx, bulk.ActionFilter{Tenant: l.in.Tenant, After: action, Limit: maxScan})
	if err != nil {
		return err
	}
	for i := range actions {
		if actions[i].Failed == 0 {
			continue
		}
		if full, err := l.collect(ctx, actions[i].ID, 0); err != nil || full {
			return err
		}
	}
	if len(actions) == maxScan {
		next := bulk.JobID(actions[maxScan-1].ID, math.MaxInt64)
		l.page.Next = &next
	}
	return nil
}

// cursor is the action and the index to begin with; the action is empty for the
// first of all.
func (l *letterList) cursor() (action string, from int64, err error) {
	if l.in.After == "" {
		return l.in.Action, 0, nil
	}
	action, index, err := bulk.ParseJobID(l.in.After)
	if err != nil || (l.in.Action != "" && action != l.in.Action) {
		return "", 0, invalid(http.StatusUnprocessableEntity, "after", "want what the page before gave as next")
	}
	if index == math.MaxInt64 {
		return action, index, nil
	}
	return action, index + 1, nil
}

// collect adds the letters of one action from an index on. It tells whether the
// page is full, and then where the next one begins.
func (l *letterList) collect(ctx context.Context, action string, from int64) (full bool, err error) {
	room := l.in.Limit - len(l.page.DeadLetters)
	letters, err := l.engine.DeadLetters(ctx, action, from, room+1)
	if errors.Is(err, bulk.ErrNotFound) && l.in.Action == "" {
		return false, nil // It was forgotten since it was listed.
	}
	if err != nil {
		return false, err
	}
	for i := range letters[:min(len(letters), room)] {
		l.page.DeadLetters = append(l.page.DeadLetters, deadLetter(letters[i]))
	}
	if len(letters) <= room {
		return false, nil
	}
	next := l.page.DeadLetters[len(l.page.DeadLetters)-1].ID
	l.page.Next = &next
	return true, nil
}
