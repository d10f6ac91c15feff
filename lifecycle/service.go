package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Service is something long-lived.
type Service interface {
	// Name returns the name of the service, for logs and errors.
	Name() string
	// Start begins the service and returns when it is ready. The service goes on when
	// ctx ends. A Start that fails leaves nothing behind: Stop is not called after it.
	Start(ctx context.Context) error
	// Stop drains the service: it takes no new work, finishes or hands back the work
	// that it has, and returns when that is done or ctx ends.
	Stop(ctx context.Context) error
	// Failed is closed when the service cannot go on by itself; Err returns why.
	Failed() <-chan struct{}
	Err() error
}

// Run starts the services in order, waits until ctx ends or one of them fails,
// and stops those that were started in reverse order, all within grace. It
// returns the first failure joined with those of stopping; nil if ctx ended,
// even while services were being started, and everything stopped in time.
func Run(ctx context.Context, grace time.Duration, services ...Service) error {
	started := 0
	var failure error
	for _, service := range services {
		if ctx.Err() != nil {
			break
		}
		if err := service.Start(ctx); err != nil {
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				failure = fmt.Errorf("start %s: %w", service.Name(), err)
			}
			break
		}
		started++
	}
	if failure == nil && started == len(services) {
		failure = wait(ctx, services)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for _, service := range slices.Backward(services[:started]) {
		err := service.Stop(stopping)
		if err != nil && !reported(failure, service, err) {
			failure = errors.Join(failure, fmt.Errorf("stop %s: %w", service.Name(), err))
		}
	}
	return failure
}

// reported reports whether failure contains the error of the service's Stop: many
// services return the failure that ended them.
func reported(failure error, service Service, stop error) bool {
	own := service.Err()
	return own != nil && errors.Is(failure, own) && stop.Error() == own.Error()
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
