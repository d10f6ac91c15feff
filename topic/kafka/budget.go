package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// decodeCost is the memory that one element of a decoded request takes, with what its handler
	// remembers of it; answerCost is what the answer to it takes.
	decodeCost, answerCost = 256, 128
	// smallAnswer is the part of each answer that takes no memory from the budget, so that
	// heartbeats and produced records are never acknowledged late because consumers are slow.
	smallAnswer = 32 << 10
	// largeAtOnce is how many answers are built at once that turn out to be larger than their
	// requests suggest.
	largeAtOnce = 2
)

// allowance is the memory of one answer, from when it is built until it is sent. Only the sender of
// its connection uses it.
//
// The memory for the elements of a request is taken before the answer is built. An answer with more
// than that waits for its turn to be built, and then takes memory without waiting, so that no two
// answers wait for each other.
type allowance struct {
	server *Server
	ctx    context.Context
	// used is the size of the answer so far; held is what it has of the budget.
	used, held int64
	turn       bool
}

// reserve waits for the memory of the answer to a request with the given number of elements.
func (a *allowance) reserve(elements int) (err error) {
	a.used = int64(elements) * answerCost
	if a.used > smallAnswer {
		a.held, err = a.server.answers.Take(a.ctx, a.used, a.used)
	}
	return err
}

// await waits until there is memory for an answer of n bytes, and takes none.
func (a *allowance) await(n int64) error {
	if n <= smallAnswer {
		return nil
	}
	got, err := a.server.answers.Take(a.ctx, n, n)
	a.server.answers.Change(got)
	return err
}

// add takes n more bytes for the answer. If the answer becomes too large, the error is a
// POLICY_VIOLATION, and the answer has to do without them.
func (a *allowance) add(n int64) error {
	if most := a.server.options.MaxAnswerBytes; a.used+n > most {
		return refuse(kerr.PolicyViolation, "the answer to one request may have %d bytes: ask for less at a time", most)
	}
	a.used += n
	if a.used <= smallAnswer+a.held {
		return nil
	}
	if err := a.takeTurn(); err != nil {
		return err
	}
	if beyond := a.used - a.held; beyond > 0 {
		a.server.answers.Change(-beyond)
		a.held += beyond
	}
	return nil
}

// takeTurn waits until the answer may be built without waiting any more. Nothing of the budget is
// held while it waits for its turn, so that those with a turn get memory.
func (a *allowance) takeTurn() (err error) {
	if a.turn {
		return nil
	}
	a.server.answers.Change(a.held)
	a.held = 0
	if _, err = a.server.turns.Take(a.ctx, 1, 1); err != nil {
		return fmt.Errorf("turn of a large answer: %w", err)
	}
	a.turn = true
	if a.held, err = a.server.answers.Take(a.ctx, a.used, a.used); err != nil {
		return fmt.Errorf("memory for an answer: %w", err)
	}
	return nil
}

// built ends the turn of an answer, whose encoding has the given size.
func (a *allowance) built(size int) {
	if a.turn {
		a.turn = false
		a.server.turns.Change(1)
	}
	if held := max(int64(size)-smallAnswer, 0); held != a.held {
		a.server.answers.Change(a.held - held)
		a.held = held
	}
}

// release gives back all memory, once the answer is sent or will not be.
func (a *allowance) release() { a.built(0) }

const (
	// appendsPerProcessor is how many bytes of Produce requests are worked on at a time, for each processor. Each request counts
	// appendCost more: 64 short ones are as much, since they wait for the disk together.
	appendsPerProcessor, appendCost = 4 << 20, 64 << 10
	// longestTurn is how long a Produce request keeps its turn. One without an answer by then waits for something else, such
	// as an earlier request of its connection, or the majority of a partition's replicas.
	longestTurn = 200 * time.Millisecond
)

// awaitTurn waits until the records of a Produce request may be appended. The connection is not read in the meantime. The
// turn ends with the answer, or after longestTurn.
func (c *connection) awaitTurn(x *exchange) error {
	got, err := c.server.appends.TakeFor(c.ctx, &c.flows.appends, int64(x.size), int64(x.size)+appendCost)
	if err != nil {
		return fmt.Errorf("turn of a Produce request: %w", err)
	}
	x.turn = got
	x.lapse = time.AfterFunc(longestTurn, func() { c.server.appends.Change(got) })
	return nil
}

// endTurn ends the turn of a request, if it has one.
func (c *connection) endTurn(x *exchange) {
	if x.lapse != nil && x.lapse.Stop() {
		c.server.appends.Change(x.turn)
	}
}
