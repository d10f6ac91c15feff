package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/room"
)

// retryable are the first words of errors that end when the server is well again:
// while it starts, fails over, moves slots, runs a script of somebody's for long, or
// cannot write to its disk or its replicas.
var retryable = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF", "NOMASTERLINK",
}

// wrap says what an error of Redis means to the caller. The caller's own end is passed
// on as it is.
func wrap(ctx context.Context, err error) error {
	if answer, ok := rueidis.IsRedisErr(err); ok {
		text := answer.Error()
		word, _, _ := strings.Cut(text, " ")
		switch {
		case slices.Contains(retryable, word):
			return fmt.Errorf("%w: redis says %s", room.ErrUnavailable, text)
		case word == "OOM":
			return fmt.Errorf("%w: redis says %s", room.ErrFull, text)
		}
		return fmt.Errorf("redis says %s", text)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	// No answer: no connection, one that broke, or one on which nothing came in time.
	return fmt.Errorf("%w: %w", room.ErrUnavailable, err)
}
