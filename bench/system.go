package bench

import (
	"context"
	"fmt"
	"time"
)

// BatchSize is how many jobs a batch has, and PayloadBytes how large each is.
const (
	BatchSize    = 1000
	PayloadBytes = 100
)

// Workload is what a queue is opened for.
type Workload struct {
	// Tenants is the number of tenants; producer i enqueues jobs of tenant i.
	Tenants int
	// Rate is how many jobs of each tenant may start in each second. 0: no limit.
	Rate int
}

// System is one of those compared.
type System struct {
	// Name has the settings where there is more than one choice.
	Name string
	// Open returns a fresh, empty queue.
	Open func(context.Context, Workload) (Queue, error)
	// Of is the group that the name belongs to: Sluice, Asynq or River.
	Of string
}

// The groups of systems.
const (
	Sluice = "sluice"
	Asynq  = "asynq"
	River  = "river"
)

// Queue holds jobs that wait. Enqueue may be called by all producers side by
// side; Work is called once, after them.
type Queue interface {
	// Enqueue adds a batch to the producer's tenant. When it returns, the batch
	// is as durable as the system's settings say.
	Enqueue(ctx context.Context, producer int, payloads [][]byte) error
	// Work starts the workers, runs the given number of jobs, which is how many
	// wait, and returns once each is recorded as done: for sluice its action is
	// COMPLETED, for asynq its queue is empty, for river the completer's event
	// has come.
	Work(ctx context.Context, jobs int) (Worked, error)
	// Close stops the workers and drops the jobs.
	Close() error
}

// Worked is what a queue counted while it worked.
type Worked struct {
	// Throttled is how often a job was turned back by its tenant's rate.
	Throttled int64
}

// Batch returns jobs of a tenant, JSON objects of PayloadBytes each.
func Batch(tenant, jobs int) [][]byte {
	batch := make([][]byte, jobs)
	for i := range batch {
		head := fmt.Sprintf(`{"tenant":%d,"n":%d,"text":"`, tenant, i)
		batch[i] = fmt.Appendf(nil, `%s%-*s"}`, head, PayloadBytes-len(head)-2, "a job")
	}
	return batch
}

// payload is what Batch writes, as the handlers of peers read it.
type payload struct {
	Tenant int `json:"tenant"`
}

// nextWindow is when the fixed window of a second after now begins. They are
// those that sluice counts its limits in by default.
func nextWindow(now time.Time) time.Time { return now.Truncate(time.Second).Add(time.Second) }
