package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// maxTries is how often a transition is decided again because the action has changed in what
// the decision depends on.
const maxTries = 100

// change is the input of lua/move.lua: it sets fields if the guards still hold.
type change struct {
	Guards map[string]any `json:"guards"`
	// Landed, if not nil, requires that jobs are in flight (false) or none is (true).
	Landed *bool `json:"landed,omitempty"`
	// Closes ends an open stream, with as many jobs as it has by then.
	Closes  bool           `json:"closes,omitempty"`
	Set     map[string]any `json:"set"`
	Effect  string         `json:"effect"`
	Below   int64          `json:"below"`
	Letters []int64        `json:"letters,omitempty"`
	Retires bool           `json:"retires"`
	Live    bool           `json:"live"`
}

// Transition implements bulk.Store. Action.Apply decides by the action as it was read; the
// script makes the transition if the guards still hold.
func (s *Store) Transition(ctx context.Context, id string, move bulk.Transition) (moved bulk.Action, err error) {
	n, err := s.lookup(ctx, id)
	if err != nil {
		return moved, err
	}
	for range maxTries {
		st, err := s.read(ctx, n)
		if errors.Is(err, bulk.ErrNotFound) && move.Kind == bulk.Forget { // it was forgotten before, but the id remains
			if err := s.drop(ctx, id, n, true); err != nil {
				return moved, err
			}
		}
		if err != nil {
			return moved, err
		}
		next, err := st.action.Apply(move, st.now.UTC())
		if err != nil {
			return st.action, err
		}
		if move.Kind == bulk.Forget {
			if err := s.sweep(ctx, &st.action, n); err != nil {
				return moved, err
			}
		}
		done, after, err := s.tryMove(ctx, st, next, move)
		if err != nil {
			return moved, err
		}
		if done {
			switch move.Kind {
			case bulk.Cancel:
				err = s.sweep(ctx, &after, n)
			case bulk.Forget:
				err = s.drop(ctx, id, n, false)
			}
			return after, err
		}
	}
	return moved, fmt.Errorf("%w: action %q changes too fast to be moved", bulk.ErrUnavailable, id)
}

// drop deletes the id of an action that is gone. An id that remains refers to nothing, and is
// deleted by the next Forget or Create.
func (s *Store) drop(ctx context.Context, id string, n uint64, unclaimed bool) error {
	_, err := onHub(ctx, s, dropScript, asInt, id, strconv.FormatUint(n, 10), strconv.Itoa(flag(unclaimed)))
	return err
}

// sweep deletes what is stored of the jobs of a canceled action that are not in flight. It
// follows Cancel, in steps, as the data may be large. If it is interrupted, due times are
// deleted when they come, and the rest before the action is forgotten.
func (s *Store) sweep(ctx context.Context, a *bulk.Action, n uint64) (err error) {
	if a.Status != bulk.Canceled {
		return nil
	}
	for cursor, first := "0", true; first || cursor != "0"; first = false {
		cursor, err = onShard(ctx, s, sweepScript, s.shardOfNumber(n), asText, strconv.FormatUint(n, 10), cursor)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) tryMove(ctx context.Context, st *stored, next bulk.Action, move bulk.Transition) (done bool, after bulk.Action, err error) {
	c := changeOf(st, next, move)
	text, err := json.Marshal(c)
	if err != nil {
		return false, after, err
	}
	result := ""
	if next.Result != nil && st.action.Result == nil {
		encoded, err := json.Marshal(next.Result)
		if err != nil {
			return false, after, err
		}
		result = string(encoded)
	}
	parts, err := onShard(ctx, s, moveScript, s.shardOfNumber(st.number), asArray,
		strconv.FormatUint(st.number, 10), string(text), move.EventType(&st.action, &next), rueidis.BinaryString(next.Partial), result)
	if err != nil {
		return false, after, err
	}
	verdict, err1 := parts[1].AsInt64()
	encoded, err2 := parts[2].ToString()
	if err := errors.Join(err1, err2); err != nil {
		return false, after, err
	}
	switch {
	case verdict == 2:
		return false, after, s.outboxFull()
	case verdict == 0:
		return false, after, nil
	case encoded == "":
		return true, next, nil
	}
	var r record
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		return false, after, fmt.Errorf("redis: the script move: %w", err)
	}
	return true, r.action(&st.action.Spec, next.Partial, next.Result), nil
}

// changeOf returns the change that turns a stored action into the next one, guarded by the
// fields that Action.Apply depends on for this transition.
func changeOf(st *stored, next bulk.Action, move bulk.Transition) change {
	r := &st.record
	c := change{Guards: map[string]any{"status": r.Status}, Set: map[string]any{}, Live: r.live()}
	landed := r.Flight == 0
	if r.Open == 1 { // once it is closed, it stays so
		c.Guards["open"], c.Closes = r.Open, !next.Open
	}
	switch move.Kind {
	case bulk.Seal:
		if r.Open == 0 || move.Total != bulk.AtEnd {
			c.Guards["received"] = r.Received
		}
	case bulk.Pause:
		c.Guards["paused"], c.Effect = r.Paused, "pause"
	case bulk.Resume:
		c.Guards["paused"], c.Effect = r.Paused, "resume"
	case bulk.Cancel:
		c.Effect, c.Landed = "cancel", &landed
		if move.IfEmpty {
			c.Guards["received"] = r.Received
		}
	case bulk.Drained:
		c.Guards["finished"], c.Landed = r.Finished, &landed
	case bulk.Aggregate:
		c.Guards["succeeded"], c.Guards["failed"], c.Guards["canceled"] = r.Succeeded, r.Failed, r.Canceled
	case bulk.Reduce:
		c.Guards["reduced"], c.Guards["error"], c.Effect = r.Reduced, r.Error, "reduce"
	case bulk.Complete, bulk.Fail:
		c.Guards["reduced"], c.Guards["outcomes"], c.Guards["failed"] = r.Reduced, r.Outcomes, r.Failed
	case bulk.Replayed:
		c.Guards["finished"], c.Guards["replays"] = r.Finished, r.Replays
		c.Effect, c.Below = "replayed", move.Total
	case bulk.DropLetters:
		c.Guards["finished"], c.Effect, c.Letters = r.Finished, "drop", move.Letters
	case bulk.Forget:
		c.Effect, c.Landed = "forget", nil
	}
	c.diff(&st.action, &next)
	c.Retires = r.live() && next.Status.Final() && !next.FinishedAt.IsZero() && move.Kind != bulk.Forget
	return c
}

// diff sets the fields that a transition has changed.
func (c *change) diff(before, after *bulk.Action) {
	set := func(name string, changed bool, value any) {
		if changed {
			c.Set[name] = value
		}
	}
	set("status", before.Status != after.Status, after.Status)
	set("paused", before.Paused != after.Paused, flag(after.Paused))
	set("total", before.Total != after.Total, after.Total)
	set("entered", !before.EnteredAt.Equal(after.EnteredAt), millis(after.EnteredAt))
	set("finished", !before.FinishedAt.Equal(after.FinishedAt), millis(after.FinishedAt))
	set("reduced", before.Reduced != after.Reduced, after.Reduced)
	set("replays", before.Replays != after.Replays, after.Replays)
	set("error", before.Error != after.Error, after.Error)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
