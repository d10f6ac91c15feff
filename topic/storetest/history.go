package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-project/sluice/topic"
)

// Bounds of a history.
const (
	// historyPairs is how many pairs of keys there are: each is checked by itself.
	historyPairs = 3
	// historyOperations bounds the operations of one worker without a disturbance, and
	// historyMost in any case.
	historyOperations = 100
	historyMost       = 1500
	// historyAfter is how long workers continue after the disturbance.
	historyAfter = 500 * time.Millisecond
	// historyPause is the longest pause between two operations of a worker.
	historyPause = 10 * time.Millisecond
	// historyCheck bounds the search for an order.
	historyCheck = 5 * time.Minute
)

type operationKind int

const (
	readKind operationKind = iota
	putKind
	deleteKind
)

func (k operationKind) String() string { return [...]string{"read", "put", "delete"}[k] }

// asked is the input of an operation.
type asked struct {
	kind   operationKind
	pair   int
	key    int // of the pair
	expect uint64
	value  string
	// guarded reports that the operation has a guard: the pair's other key at revision guard.
	guarded bool
	guard   uint64
}

// told is the output of an operation.
type told struct {
	err      error // nil, ErrConflict, ErrNotFound or ErrUncertain
	revision uint64
	value    string
}

// register is a key of a pair. Revision 0: it does not exist.
type register struct {
	revision uint64
	value    string
}

// unknown stands for the revision of a key after a write without an answer, until the key is
// read. No operation expects it.
const unknown = math.MaxUint64

// historyModel is the sequential model of a pair of keys.
var historyModel = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		pairs := make([][]porcupine.Operation, historyPairs)
		for _, o := range history {
			pair := o.Input.(asked).pair
			pairs[pair] = append(pairs[pair], o)
		}
		return pairs
	},
	Init: func() []any { return []any{[2]register{}} },
	Step: func(state, input, output any) []any { return step(state.([2]register), input.(asked), output.(told)) },
	DescribeOperation: func(input, output any) string {
		out := output.(told)
		return fmt.Sprintf("%+v: revision %d, value %q, %s", input, out.revision, out.value, outcome(out.err))
	},
}).ToModel()

// step returns the possible states of a pair after an operation, none if the output is
// impossible.
func step(state [2]register, in asked, out told) []any {
	is := &state[in.key]
	if in.kind == readKind {
		switch {
		case errors.Is(out.err, topic.ErrNotFound):
			if is.revision != 0 {
				return nil
			}
		case is.revision == 0 || is.value != out.value || is.revision != out.revision && is.revision != unknown:
			return nil
		default:
			is.revision = out.revision
		}
		return []any{state}
	}
	before := state
	missing := in.kind == deleteKind && is.revision == 0
	holds := is.revision == in.expect && (!in.guarded || state[1-in.key].revision == in.guard)
	switch {
	case in.kind == putKind:
		*is = register{out.revision, in.value}
	default:
		*is = register{}
	}
	switch {
	case out.err == nil && holds && !missing:
		return []any{state}
	case errors.Is(out.err, topic.ErrNotFound) && missing,
		errors.Is(out.err, topic.ErrConflict) && !holds && !missing:
		return []any{before}
	case errors.Is(out.err, topic.ErrUncertain) && holds && !missing:
		if in.kind == putKind {
			is.revision = unknown
		}
		return []any{before, state}
	case errors.Is(out.err, topic.ErrUncertain):
		return []any{before}
	}
	return nil
}

// history records operations.
type history struct {
	begin  time.Time
	prefix string // of its keys

	mu         sync.Mutex
	operations []porcupine.Operation
	outcomes   map[string]int
	failure    error // the last
}

func (h *history) now() int64 { return int64(time.Since(h.begin)) }

// never is the end of an operation that may take effect at any later time.
const never = math.MaxInt64

// add records an operation, and returns its number.
func (h *history) add(o porcupine.Operation) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
	h.outcomes[o.Input.(asked).kind.String()+", "+outcome(o.Output.(told).err)]++
	return len(h.operations) - 1
}

func outcome(err error) string {
	for _, is := range []error{topic.ErrConflict, topic.ErrNotFound, topic.ErrUncertain} {
		if errors.Is(err, is) {
			return is.Error()
		}
	}
	return fmt.Sprint(err)
}

// failed counts an operation whose output has no information.
func (h *history) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcomes["failed"]++
	h.failure = err
}

// end sets the end of operations for which it was not known.
func (h *history) end(numbers []int, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, number := range numbers {
		h.operations[number].Return = at
	}
}

// historyWorker runs operations on one node.
type historyWorker struct {
	*history
	id   int
	meta topic.Meta
	rand *rand.Rand
	// known has the revisions last read or written.
	known [historyPairs][2]uint64
	// open has the numbers of the operations without an answer. A read after a sync on the
	// same node is final for them.
	open []int
}

func (w *historyWorker) key(pair, key int) string {
	return fmt.Sprintf("%s/%d/%d", w.prefix, pair, key)
}

// run runs operations until stop is closed, and some more.
func (w *historyWorker) run(ctx context.Context, stop <-chan struct{}) error {
	var stopped time.Time
	for i := 0; ; i++ {
		if err := w.one(ctx, i); err != nil {
			return err
		}
		if i == historyMost {
			<-stop
		}
		select {
		case <-stop:
			if stopped.IsZero() {
				stopped = time.Now()
			}
			if i >= historyMost+historyOperations/10 || i >= historyOperations && time.Since(stopped) > historyAfter {
				return nil
			}
		default:
		}
		if pause := time.Duration(w.rand.Int64N(int64(historyPause))); pause > historyPause/4 {
			<-time.After(pause)
		}
	}
}

// one runs an operation, and records it unless it had no effect and no information.
func (w *historyWorker) one(ctx context.Context, number int) error {
	in := asked{pair: w.rand.IntN(historyPairs), key: w.rand.IntN(2)}
	in.kind = []operationKind{readKind, readKind, putKind, putKind, putKind, deleteKind}[w.rand.IntN(6)]
	known := &w.known[in.pair]
	if in.kind != readKind {
		in.expect, in.value = known[in.key], fmt.Sprint(w.id, "-", number)
		if in.guarded = w.rand.IntN(3) == 0; in.guarded {
			in.guard = known[1-in.key]
		}
	}
	call := w.now()
	out := w.do(ctx, in)
	o := porcupine.Operation{ClientId: w.id, Input: in, Call: call, Output: out, Return: w.now()}
	switch {
	case out.err == nil:
		known[in.key] = out.revision
	case errors.Is(out.err, topic.ErrNotFound):
		known[in.key] = 0
	case errors.Is(out.err, topic.ErrConflict):
	case errors.Is(out.err, topic.ErrUncertain) && in.kind != readKind:
		o.Return = never
		w.open = append(w.open, w.add(o))
		return nil
	default:
		w.failed(out.err)
		return ctx.Err()
	}
	w.add(o)
	if in.kind == readKind {
		w.end(w.open, o.Return)
		w.open = nil
	}
	return nil
}

func (w *historyWorker) do(ctx context.Context, in asked) (out told) {
	key := w.key(in.pair, in.key)
	var guards []topic.Guard
	if in.guarded {
		guards = []topic.Guard{{Key: w.key(in.pair, 1-in.key), Revision: in.guard}}
	}
	switch in.kind {
	case putKind:
		out.revision, out.err = w.meta.Put(ctx, key, []byte(in.value), in.expect, guards...)
	case deleteKind:
		out.err = w.meta.Delete(ctx, key, in.expect, guards...)
	case readKind:
		if out.err = w.meta.Sync(ctx); out.err != nil {
			return out
		}
		var item topic.Item
		item, out.err = w.meta.Get(ctx, key)
		out.revision, out.value = item.Revision, string(item.Value)
	}
	return out
}

// histories counts histories, so that each has its own keys.
var histories struct {
	sync.Mutex
	n int
}

// checkHistory records the operations of workers on all nodes during a disturbance, and
// checks that they are linearizable.
func checkHistory(t testing.TB, views []topic.Meta, disturb func(testing.TB)) {
	n := newViewKits(t, views)
	histories.Lock()
	histories.n++
	number := histories.n
	h := &history{begin: time.Now(), prefix: fmt.Sprint("history", number), outcomes: map[string]int{}}
	histories.Unlock()
	stop := make(chan struct{})
	var disturbing sync.WaitGroup
	disturbing.Go(func() {
		defer close(stop)
		if disturb != nil {
			disturb(t)
		}
	})
	work(2*len(views), func(id int) error {
		seed := rand.NewPCG(uint64(number), uint64(id))
		w := &historyWorker{history: h, id: id, meta: views[id%len(views)], rand: rand.New(seed)}
		return w.run(n.ctx, stop)
	}, n.kit)
	disturbing.Wait()
	t.Logf("%d operations: %v; last failure: %v", len(h.operations), h.outcomes, h.failure)
	switch result := porcupine.CheckOperationsTimeout(historyModel, h.operations, historyCheck); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatalf("no order was found, and none was excluded, within %v", historyCheck)
	default:
		h.logWrong(t)
		t.Fatal("the history is not linearizable")
	}
}

// logWrong logs the operations of the pairs that are not linearizable, by start.
func (h *history) logWrong(t testing.TB) {
	t.Helper()
	for _, pair := range historyModel.Partition(h.operations) {
		if porcupine.CheckOperationsTimeout(historyModel, pair, historyCheck) != porcupine.Illegal {
			continue
		}
		slices.SortFunc(pair, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range pair {
			end := "?"
			if o.Return != never {
				end = time.Duration(o.Return).String()
			}
			t.Logf("worker %d, %v to %s: %s", o.ClientId, time.Duration(o.Call), end, historyModel.DescribeOperation(o.Input, o.Output))
		}
	}
}
