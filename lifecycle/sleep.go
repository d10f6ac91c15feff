package lifecycle

import (
	"context"
	"time"
)

// Sleep is the pause of a loop between two turns: it waits for d, or until wake, which
// may be nil, tells of something to do. It returns false when ctx has ended.
func Sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
