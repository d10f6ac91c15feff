package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	roomclient "github.com/sluice-project/sluice/room/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	commands := map[string]func(ctx context.Context, url, of string) error{"play": play, "work": work, "room": room, "refused": refused}
	if err := commands[os.Args[1]](ctx, os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

const kind = "scenario-go"

// scenario is what a payload asks for.
type scenario struct {
	Do       string
	Reason   string
	Attempts int
	Times    int
	Seconds  float64
	Value    json.RawMessage
}

// JobType names the type of the scenarios' jobs.
func (scenario) JobType() string { return kind }

// player runs the jobs of scenarios.
type player struct {
	mu        sync.Mutex
	throttled map[string]int // by job
}

// Work does what a payload asks for.
func (p *player) Work(ctx context.Context, job *bulk.TypedJob[scenario]) (any, error) {
	do := job.Args
	switch {
	case do.Do == "skip":
		return nil, final(do.Reason)
	case do.Do == "raise" && job.Attempt <= do.Attempts:
		return nil, errors.New(do.Reason)
	case do.Do == "retry" && job.Attempt <= do.Attempts:
		return nil, &bulk.RetryAfterError{After: 50 * time.Millisecond, Err: errors.New(do.Reason)}
	case do.Do == "throttle" && p.throttle(job.ID(), do.Times):
		return nil, &bulk.ThrottledError{RetryAfter: 50 * time.Millisecond}
	case do.Do == "sleep":
		<-time.After(time.Duration(do.Seconds * float64(time.Second)))
	case do.Do == "until_canceled":
		<-ctx.Done()
		return nil, ctx.Err()
	case do.Do == "not_json":
		return func() {}, nil
	}
	if do.Value == nil {
		return nil, nil
	}
	return do.Value, nil
}

// final is the error of a job that should not be tried again.
type final string

func (f final) Error() string        { return string(f) }
func (f final) Is(target error) bool { return target == bulk.SkipRetry }

// throttle reports whether the job is still to be throttled.
func (p *player) throttle(job string, times int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttled[job]++
	return p.throttled[job] <= times
}

func play(ctx context.Context, url, file string) error {
	c, err := client.New(url)
	if err != nil {
		return err
	}
	mux := bulk.NewMux()
	bulk.AddWorker(mux, &player{throttled: map[string]int{}})
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.NewWorker(mux, client.WorkerOptions{Concurrency: 4, Lease: time.Second}).Run(ctx) }()
	err = playAll(ctx, c, file)
	stop()
	return errors.Join(err, <-ended)
}

func playAll(ctx context.Context, c *client.Client, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var scenarios []struct {
		Name     string
		Spec     wire.NewAction
		Payloads []json.RawMessage
		Cancel   int64
	}
	if err := json.Unmarshal(text, &scenarios); err != nil {
		return err
	}
	for _, s := range scenarios {
		s.Spec.Tenant, s.Spec.Type = "sdk", kind
		action, err := submit(ctx, c, s.Spec, s.Payloads)
		if err != nil {
			return err
		}
		err = c.Watch(ctx, action.ID, func(now wire.Action) error {
			if s.Cancel > 0 && now.InFlight == s.Cancel {
				_, err := c.Cancel(ctx, action.ID)
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := printEnd(ctx, c, s.Name, action.ID); err != nil {
			return err
		}
	}
	return nil
}

func submit(ctx context.Context, c *client.Client, spec wire.NewAction, payloads []json.RawMessage) (action wire.Action, err error) {
	made, err := c.Create(ctx, spec)
	if err != nil {
		return action, err
	}
	chunk := make([][]byte, len(payloads))
	for i := range payloads {
		chunk[i] = payloads[i]
	}
	if _, err := c.UploadChunk(ctx, made.ID, 0, chunk); err != nil {
		return action, err
	}
	return c.Seal(ctx, made.ID, int64(len(chunk)))
}

func printEnd(ctx context.Context, c *client.Client, name, id string) error {
	action, err := c.Action(ctx, id)
	if err != nil {
		return err
	}
	failures, err := c.Failures(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"name": name, "action": action, "failures": failures.Failures})
}

func work(ctx context.Context, url, kind string) error {
	c, err := client.New(url)
	if err != nil {
		return err
	}
	mux := bulk.NewMux()
	mux.HandleFunc(kind, func(_ context.Context, job *bulk.Job) ([]byte, error) {
		fmt.Println(job.ID())
		<-time.After(50 * time.Millisecond)
		return nil, nil
	})
	return c.NewWorker(mux, client.WorkerOptions{Concurrency: 4}).Run(ctx)
}

// room passes visitors through a room, each as soon as the one before has left.
func room(ctx context.Context, url, name string) error {
	c, err := roomclient.New(url)
	if err != nil {
		return err
	}
	first, err := c.Enter(ctx, name, "first")
	if err != nil {
		return err
	}
	second, err := c.Enter(ctx, name, "second")
	if err != nil {
		return err
	}
	if again, err := c.Enter(ctx, name, "second"); err != nil || again.ID != second.ID || first.Status != "inside" || second.Status != "waiting" {
		return fmt.Errorf("%v, %v, %v, %w", first, second, again, err)
	}
	if err := c.Leave(ctx, name, first.Ticket); err != nil {
		return err
	}
	for second.Status != "inside" {
		if second, err = c.Ask(ctx, name, second.Ticket); err != nil {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
	if err := c.Leave(ctx, name, second.Ticket); err != nil {
		return err
	}
	if _, err := c.Ask(ctx, name, second.Ticket); !roomclient.IsStatus(err, 410) {
		return fmt.Errorf("a place that was left is still there: %w", err)
	}
	fmt.Println("ok")
	return nil
}

// refused enters a room that refuses, and prints the code of the refusal.
func refused(ctx context.Context, url, name string) error {
	c, err := roomclient.New(url)
	if err != nil {
		return err
	}
	_, err = c.Enter(ctx, name, "first")
	var refusal *roomclient.Error
	if !errors.As(err, &refusal) {
		return fmt.Errorf("the room has not refused: %w", err)
	}
	fmt.Println(refusal.Code)
	return nil
}
