package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"time"
)

// BatchSize is the number of jobs of a batch, and PayloadBytes the size of each.
const (
	BatchSize    = 1000
	PayloadBytes = 100
)

// Workload is the load that a queue is opened for.
type Workload struct {
	// Tenants is the number of tenants; producer i enqueues jobs of tenant i.
	Tenants int
	// Rate is how many jobs of each tenant may start in each second. 0: no limit.
	Rate int
}

// System is one of the compared systems, with its settings.
type System struct {
	// Name is the system and its durability; Workers are the settings of its workers, empty for
	// defaults.
	Name, Workers string
	// Open returns a fresh, empty queue.
	Open func(context.Context, Workload) (Queue, error)
	// RunBatches is the number of batches for a run of a few seconds.
	RunBatches int
	// EnqueuesAsOther means that only the workers differ from another system's.
	EnqueuesAsOther bool
	// SlowAtLoad means that another system is the same peer with better settings for the load test.
	SlowAtLoad bool
}

// Title returns the name with the settings of the workers.
func (s System) Title() string {
	if s.Workers == "" {
		return s.Name
	}
	return s.Name + ", " + s.Workers
}

// Queue holds waiting jobs. Enqueue may be called by all producers concurrently; Work is called
// once, after them.
type Queue interface {
	// Enqueue adds a batch to the producer's tenant. When it returns, the batch is as durable as
	// the system's settings provide.
	Enqueue(ctx context.Context, producer int, payloads [][]byte) error
	// EnqueueOne adds one job, as durable as those of Enqueue. Any number of callers may call it
	// concurrently.
	EnqueueOne(ctx context.Context, payload []byte) error
	// Waiting returns the system's own count of its jobs; it is called between Enqueue and Work.
	Waiting(ctx context.Context) (int, error)
	// Work starts the workers, runs the given number of jobs, which is how many wait, and returns
	// once each is recorded as done: for sluice its action is COMPLETED, for asynq its queue is
	// empty, for river the completer's event has come.
	Work(ctx context.Context, jobs int) (Worked, error)
	// Close stops the workers and drops the jobs.
	Close() error
}

// Worked has the counts of a queue's work.
type Worked struct {
	// Throttled is how often a job was throttled by its tenant's rate.
	Throttled int64
}

// Batch returns jobs of a tenant, JSON objects of PayloadBytes each. Their text is random, the same
// in every run: compressible text would favour systems that compress.
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

// payload is the payload of Batch, as the handlers of peers read it.
type payload struct {
	Tenant int `json:"tenant"`
}

// nextWindow returns when the next fixed window of a second begins. By default sluice counts its
// limits in the same windows.
func nextWindow(now time.Time) time.Time { return now.Truncate(time.Second).Add(time.Second) }
