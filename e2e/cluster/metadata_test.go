//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// change is one call that changes a topic.
type change struct {
	topic string
	kind  changeKind
	// partitions is the wanted number of partitions.
	partitions int
}

type changeKind int

const (
	create changeKind = iota
	remove
	grow
)

// verdict is the answer to a change.
type verdict int

const (
	done     verdict = iota
	refused          // the topic exists, does not exist, or has as many partitions
	unknown          // it may have been done, also later
	notAsked         // the node was not reached
)

// topicModel is one topic with its number of partitions, 0 if it does not exist. Calls without an
// answer may take effect at any time after they began, or never. Of several concurrent calls that
// delete one topic, all may succeed.
var topicModel = porcupine.Model{
	Init: func() any { return 0 },
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			name := o.Input.(change).topic
			by[name] = append(by[name], o)
		}
		var all [][]porcupine.Operation
		for _, operations := range by {
			all = append(all, operations)
		}
		return all
	},
	Step: func(state, input, output any) (bool, any) {
		has, wants := state.(int), input.(change)
		possible, after := false, has
		switch wants.kind {
		case create:
			possible, after = has == 0, wants.partitions
		case remove:
			possible, after = has > 0, 0
		case grow:
			possible, after = has > 0 && has < wants.partitions, wants.partitions
		}
		switch output.(verdict) {
		case done:
			return possible || wants.kind == remove, after
		case refused:
			return !possible, has
		default:
			if !possible {
				after = has
			}
			return true, after
		}
	},
	DescribeOperation: func(input, output any) string {
		c := input.(change)
		return fmt.Sprintf("%s %s to %d: %s", [...]string{"create", "remove", "grow"}[c.kind], c.topic, c.partitions, [...]string{"done", "refused", "?"}[output.(verdict)])
	},
}

// changers is how many clients change topics concurrently, and changesBetween how many of their
// calls are answered before each fault, and after the last.
const (
	changers       = 4
	changesBetween = 20
)

// changeTopics changes topics during faults of nodes, and returns the answers.
func (c *cluster) changeTopics(faults ...fault) []porcupine.Operation {
	c.t.Helper()
	log := &changeLog{begin: time.Now()}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	var wait sync.WaitGroup
	for client := range changers {
		a := asker{c.t, c.directTo(1 + client%len(c.nodes))}
		wait.Go(func() {
			for ctx.Err() == nil {
				log.ask(a, client, change{fmt.Sprintf("topic-%d", rand.N(2)), changeKind(rand.N(3)), 1 + rand.N(3)})
			}
		})
	}
	goOn := func() {
		c.t.Helper()
		before := log.answered()
		eventually(c.t, until.Limit, "topics are changed", func() bool { return log.answered() >= before+changesBetween })
	}
	for _, f := range faults {
		goOn()
		n := c.nodes[rand.N(len(c.nodes))]
		if err := f.begin(n); err != nil {
			c.t.Fatal(err)
		}
		<-time.After(f.hold)
		if err := f.end(n); err != nil {
			c.t.Fatal(err)
		}
		n.awaitReady()
	}
	goOn()
	cancel()
	wait.Wait()
	return log.operations
}

// changeLog records the changes.
type changeLog struct {
	begin      time.Time
	mu         sync.Mutex
	operations []porcupine.Operation
}

// ask makes a change and records the answer. A change without an answer may take effect at any
// later time.
func (l *changeLog) ask(a asker, client int, asked change) {
	called := time.Since(l.begin)
	answer := a.ask(asked)
	returned := time.Since(l.begin)
	switch answer {
	case unknown:
		returned = math.MaxInt64
	case notAsked:
		<-time.After(100 * time.Millisecond)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.operations = append(l.operations, porcupine.Operation{ClientId: client, Input: asked, Call: int64(called), Output: answer, Return: int64(returned)})
}

// answered returns how many changes were answered.
func (l *changeLog) answered() (count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.operations {
		if o.Output != unknown {
			count++
		}
	}
	return count
}

func checkLinearizable(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	counts := map[verdict]int{}
	for _, o := range history {
		counts[o.Output.(verdict)]++
	}
	t.Logf("%d changes: %d done, %d refused, %d without an answer", len(history), counts[done], counts[refused], counts[unknown])
	result := porcupine.CheckOperationsTimeout(topicModel, history, until.Limit)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("the history is not linearizable: %s", result)
	for _, o := range shortestIllegal(history) {
		t.Logf("client %d, %v to %v: %s", o.ClientId, time.Duration(o.Call).Round(time.Microsecond), time.Duration(o.Return).Round(time.Microsecond), topicModel.DescribeOperation(o.Input, o.Output))
	}
}

// shortestIllegal returns the operations on one topic up to the first impossible answer. Calls
// without an answer by then may have been done.
func shortestIllegal(history []porcupine.Operation) (shortest []porcupine.Operation) {
	for _, operations := range topicModel.Partition(history) {
		slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		for _, last := range operations {
			var before []porcupine.Operation
			for _, o := range operations {
				if o.Return > last.Return {
					o.Output, o.Return = unknown, math.MaxInt64
				}
				if o.Call <= last.Return {
					before = append(before, o)
				}
			}
			if porcupine.CheckOperationsTimeout(topicModel, before, 5*time.Second) == porcupine.Illegal {
				if shortest == nil || len(before) < len(shortest) {
					shortest = before
				}
				break
			}
		}
	}
	return shortest
}

// asker asks one node and does not retry.
type asker struct {
	t      *testing.T
	broker *kgo.Broker
}

// patience bounds a change by the node, in milliseconds.
const patience = 8000

// ask makes one change.
func (a asker) ask(c change) verdict {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := a.broker.Request(ctx, c.request())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return notAsked
	} else if err != nil {
		a.t.Logf("%+v: %v", c, err)
		return unknown
	}
	var code int16
	switch response := answer.(type) {
	case *kmsg.CreateTopicsResponse:
		code = response.Topics[0].ErrorCode
	case *kmsg.DeleteTopicsResponse:
		code = response.Topics[0].ErrorCode
	case *kmsg.CreatePartitionsResponse:
		code = response.Topics[0].ErrorCode
	}
	switch err := kerr.ErrorForCode(code); {
	case err == nil:
		return done
	case errors.Is(err, kerr.TopicAlreadyExists) && c.kind == create,
		errors.Is(err, kerr.UnknownTopicOrPartition) && c.kind != create, // created and undone by others
		errors.Is(err, kerr.InvalidPartitions):
		return refused
	case errors.Is(err, kerr.InvalidReplicationFactor): // a node is away, and nothing was changed
		return notAsked
	default:
		a.t.Logf("%+v: %v", c, err)
		return unknown
	}
}

// request returns the Kafka request for a change.
func (c change) request() kmsg.Request {
	switch c.kind {
	case create:
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = c.topic, int32(c.partitions), -1
		request := kmsg.NewPtrCreateTopicsRequest()
		request.Topics, request.TimeoutMillis = append(request.Topics, topic), patience
		return request
	case remove:
		request := kmsg.NewPtrDeleteTopicsRequest()
		request.TopicNames, request.TimeoutMillis = []string{c.topic}, patience
		return request
	default:
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = c.topic, int32(c.partitions)
		request := kmsg.NewPtrCreatePartitionsRequest()
		request.Topics, request.TimeoutMillis = append(request.Topics, topic), patience
		return request
	}
}

func TestTopicModel(t *testing.T) {
	sequence := func(steps ...porcupine.Operation) []porcupine.Operation {
		for i := range steps {
			if steps[i].Return == 0 { // after the one before it
				steps[i].Call, steps[i].Return = int64(10*i), int64(10*i+5)
			}
		}
		return steps
	}
	step := func(kind changeKind, partitions int, v verdict) porcupine.Operation {
		return porcupine.Operation{Input: change{"a", kind, partitions}, Output: v}
	}
	lateCreate := step(create, 1, unknown)
	lateCreate.Call, lateCreate.Return = 0, 1000
	for name, test := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"made, grown, removed":                    {sequence(step(create, 1, done), step(grow, 3, done), step(remove, 0, done), step(remove, 0, refused)), true},
		"made twice":                              {sequence(step(create, 1, done), step(create, 1, done)), false},
		"forgotten":                               {sequence(step(create, 1, done), step(remove, 0, refused)), false},
		"refused, and was not there":              {sequence(step(create, 1, refused)), false},
		"grew to what it has":                     {sequence(step(create, 2, done), step(grow, 2, done)), false},
		"removed, and is there":                   {sequence(step(create, 2, done), step(remove, 0, done), step(grow, 3, done)), false},
		"made late, as nobody answered":           {sequence(lateCreate, step(remove, 0, refused), step(remove, 0, done)), true},
		"not made, as nobody answered":            {sequence(lateCreate, step(remove, 0, refused), step(remove, 0, refused)), true},
		"made twice, as nobody answered once":     {sequence(lateCreate, step(create, 2, done), step(create, 1, done)), false},
		"others are not touched by other changes": {sequence(step(create, 1, done), porcupine.Operation{Input: change{"b", remove, 0}, Output: refused}), true},
	} {
		if got := porcupine.CheckOperations(topicModel, test.history); got != test.want {
			t.Errorf("%s: linearizable %t, want %t", name, got, test.want)
		}
	}
}
