package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// adminTime bounds an administrative request, whatever timeout the client asks for.
const adminTime = 2 * time.Minute

// adminContext returns a context that does not end with the connection or the client's
// timeout, so that a change that has begun is finished.
func adminContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), adminTime)
}

// refuse returns an error with a code of the protocol.
func refuse(kind *kerr.Error, format string, args ...any) error {
	return fail(kind, fmt.Sprintf(format, args...))
}

// outcome returns the code and the message of an error; 0 and nil for none. It logs
// unexpected errors.
func (s *Server) outcome(doing string, err error) (int16, *string) {
	s.unexpected(doing, "", err)
	return code(err), message(err)
}

// twice returns the names that occur more than once.
func twice[T any, K comparable](all []T, name func(*T) K) map[K]bool {
	seen, again := map[K]bool{}, map[K]bool{}
	for i := range all {
		key := name(&all[i])
		again[key] = seen[key]
		seen[key] = true
	}
	for key, more := range again {
		if !more {
			delete(again, key)
		}
	}
	return again
}

// refuseAs returns one of topic's errors with a message.
func refuseAs(err error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
}
