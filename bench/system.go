package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
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

// System is one of those compared, with its settings.
type System struct {
	// Name says what it is, and how durable; Workers what its workers' settings
	// are, empty for defaults.
	Name, Workers string
	// Open returns a fresh, empty queue.
	Open func(context.Context, Workload) (Queue, error)
	// RunBatches is how many batches make a run of a few seconds.
	RunBatches int
	// EnqueuesAsOther: it enqueues in the same way as another system, and only
	// its workers differ.
	EnqueuesAsOther bool
	// SlowAtLoad: another system is the same peer with settings that serve the
	// load test better.
	SlowAtLoad bool
}

// Title is the name with the settings of the workers.
func (s System) Title() string {
	if s.Workers == "" {
		return s.Name
	}
	return s.Name + ", " + s.Workers
}

// Queue holds jobs that wait. Enqueue may be called by all producers side by
// side; Work is called once, after them.
type Queue interface {
	// Enqueue adds a batch to the producer's tenant. When it returns, the batch
	// is as durable as the system's settings say.
	Enqueue(ctx context.Context, producer int, payloads [][]byte) error
	// Waiting is how many jobs the system itself says it has; it is asked when
	// nobody enqueues and before Work.
	Waiting(ctx context.Context) (int, error)
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

// Batch returns jobs of a tenant, JSON objects of PayloadBytes each. Their text
// is random, the same in every run: what compresses well would flatter systems
// that compress.
func Batch(tenant, jobs int) [][]byte {
	random := rand.NewChaCha8([32]byte{byte(tenant)})
	noise := make([]byte, PayloadBytes)
	batch := make([][]byte, jobs)
	for i := range batch {
		_, _ = random.Read(noise) // never fails
		job := fmt.Appendf(nil, `{"tenant":%d,"n":%d,"text":"`, tenant, i)
		job = base64.RawURLEncoding.AppendEncode(job, noise)[:PayloadBytes-2]
		batch[i] = append(job, `"}`...)
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
