package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Charge is the payload of a job: what is uploaded as JSON.
type Charge struct {
	Customer string `json:"customer"`
	Amount   string `json:"amount"`
}

// JobType names the type of these jobs.
func (Charge) JobType() string { return "order:charge" }

// Receipt is the result of a job: what the aggregates of its action read.
type Receipt struct {
	Order  string `json:"order"`
	Amount string `json:"amount"`
}

// Charger is the worker of the jobs.
type Charger struct {
	Bank string // the bank's URL
}

// Work makes one attempt. The job's id is the same in every attempt: with it the
// bank charges an order once, however often it is asked.
func (c *Charger) Work(ctx context.Context, job *bulk.TypedJob[Charge]) (any, error) {
	if job.Args.Customer == "" {
		return nil, fmt.Errorf("an order of nobody: %w", bulk.SkipRetry) // never retried
	}
	if err := c.call(ctx, job); err != nil {
		return nil, err // retried, or throttled
	}
	return Receipt{Order: job.ID(), Amount: job.Args.Amount}, nil
}

// call asks the bank.
func (c *Charger) call(ctx context.Context, job *bulk.TypedJob[Charge]) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Bank, bytes.NewReader(job.Payload))
	if err != nil {
		return err
	}
	request.Header.Set("Idempotency-Key", job.ID())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		var answer Charge
		return json.NewDecoder(response.Body).Decode(&answer)
	case http.StatusTooManyRequests: // uses no attempt
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 if it is not told
		return &bulk.ThrottledError{RetryAfter: time.Duration(seconds) * time.Second, Reason: "the bank is busy"}
	default:
		return fmt.Errorf("the bank answered %s", response.Status)
	}
}

// Submit makes the jobs of a month. Called again for the same month, after a crash
// for one, it goes on where it stopped.
func Submit(ctx context.Context, into bulk.Inserter, month string, orders ...Charge) (bulk.Action, error) {
	spec := bulk.Spec{ID: month, Tenant: "shop", Aggregate: []string{"count", "sum:amount"}}
	return bulk.Insert(ctx, into, spec, orders...)
}

// Mux has the workers of this program.
func Mux(bank string) *bulk.Mux {
	mux := bulk.NewMux()
	bulk.AddWorker(mux, &Charger{Bank: bank},
		bulk.WithTimeout(10*time.Second),
		bulk.WithRetryDelay(func(job *bulk.Job, _ error) time.Duration {
			return time.Duration(job.Attempt) * time.Minute // 1, 2, 3 minutes
		}))
	return mux
}
