package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Service is something long-lived.
type Service interface {
	// Name says what it is, for logs and errors.
	Name() string
	// Start begins the service and returns when it is ready. What it needs after
	// that must not depend on ctx's end.
	Start(ctx context.Context) error
	// Stop drains the service: it takes nothing new, finishes or hands back what
	// it has, and returns when it is done or when ctx ends.
	Stop(ctx context.Context) error
	// Failed is closed when the service cannot go on by itself; Err tells why.
	Failed() <-chan struct{}
	Err() error
}

// Run starts the services in order, waits until ctx ends or one of them fails,
// and stops those that were started in reverse order, all within grace. It
// returns the first failure joined with those of stopping; nil if ctx ended and
// everything stopped in time.
func Run(ctx context.Context, grace time.Duration, services ...Service) error {
	started := 0
	var failure error
	for _, service := range services {
		if failure = service.Start(ctx); failure != nil {
			failure = fmt.Errorf("start %s: %w", service.Name(), failure)
			break
		}
		started++
	}
	if failure == nil {
		failure = wait(ctx, services)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for i := started - 1; i >= 0; i-- {
		if err := services[i].Stop(stopping); err != nil && !errors.Is(failure, err) {
			failure = errors.Join(failure, fmt.Errorf("stop %s: %w", services[i].Name(), err))
		}
	}
	return failure
}

// wait returns nil when ctx ends, or the failure of the first service to fail.
func wait(ctx context.Context, services []Service) error {
	over, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, len(services))
	for _, service := range services {
		go func() {
			select {
			case <-service.Failed():
				failed <- fmt.Errorf("%s: %w", service.Name(), service.Err())
			case <-over.Done():
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
