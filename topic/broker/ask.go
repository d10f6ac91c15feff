package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
)

// Only the leader of a partition knows its delayed records, its end and its size. A broker
// asks the brokers that lead partitions, once, over the connections between nodes.

// leaderRequest asks a node about the partitions that it leads: for the sizes of those of
// all topics, for the ends of those of a topic or their offsets at a time, to end a transaction in one, to append dead letters
// to one, to commit the offsets of a transaction to a group that it coordinates, to reset such a group, for at most Limit of their
// delayed records or, if that is 0, to cancel one of these.
type leaderRequest struct {
	Topic  string `json:"topic"`
	Limit  int    `json:"limit,omitempty"`
	Cancel string `json:"cancel,omitempty"` // an id
	Ends   bool   `json:"ends,omitempty"`
	Sizes  bool   `json:"sizes,omitempty"`
	At     *int64 `json:"at,omitempty"` // as in PlanReset

	Mark    *markRequest    `json:"mark,omitempty"`
	Commit  *commitRequest  `json:"commit,omitempty"`
	Letters *lettersRequest `json:"letters,omitempty"`
	Reset   *resetRequest   `json:"reset,omitempty"`
}

// leaderAnswer is the answer.
type leaderAnswer struct {
	Waiting  []delay.Waiting `json:"waiting,omitempty"`
	Offsets  map[int32]int64 `json:"ends,omitempty"` // high watermarks, or what else was asked for, by partition
	Sizes    Sizes           `json:"sizes,omitempty"`
	NotFound bool            `json:"not_found,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// maxAnswerError is the most bytes of another node's error text.
const maxAnswerError = 1 << 10

// Delayed returns at most limit delayed records of a topic, in the order in which they
// are due, whatever nodes lead its partitions. Errors: ErrNoTopic; ErrNoAnswer if a
// partition has no leader, or its leader does not answer; ErrRetry if its leader cannot.
func (b *Broker) Delayed(ctx context.Context, name string, limit int) ([]delay.Waiting, error) {
	waiting, err := b.delayedHere(name, limit)
	if err != nil {
		return nil, err
	}
	leaders, err := b.otherLeaders(name)
	if err != nil {
		return nil, err
	}
	answers, errs := make([]leaderAnswer, len(leaders)), make([]error, len(leaders))
	var asking sync.WaitGroup
	for i, at := range leaders {
		asking.Go(func() { answers[i], errs[i] = b.askLeader(ctx, at, leaderRequest{Topic: name, Limit: limit}) })
	}
	asking.Wait()
	for i, answer := range answers {
		if errs[i] != nil {
			return nil, errs[i]
		}
		waiting = append(waiting, answer.Waiting...)
	}
	return delay.FirstDue(waiting, limit), nil
}

// CancelDelayed removes a delayed record before it is due, durably, whatever node leads its
// partition. Errors: ErrNoTopic; ErrNotFound if no record of that id waits: it may have
// appeared. If it may be in a partition that has no leader, or whose leader does not answer:
// ErrNoAnswer; in one whose delayed records cannot be read: ErrRetry.
func (b *Broker) CancelDelayed(ctx context.Context, name, id string) error {
	err := b.cancelHere(ctx, name, id)
	if !errors.Is(err, topic.ErrNotFound) {
		return err
	}
	leaders, without := b.otherLeaders(name)
	for _, at := range leaders {
		switch _, there := b.askLeader(ctx, at, leaderRequest{Topic: name, Cancel: id}); {
		case there == nil:
			return nil
		case !errors.Is(there, topic.ErrNotFound):
			// It may be the one that has it.
			without = errors.Join(without, fmt.Errorf("delayed record %q was not found elsewhere: %w", id, there))
		}
	}
	if without != nil {
		return without
	}
	return err
}

// otherLeader is another node that leads partitions of a topic.
type otherLeader struct {
	node       int32
	partitions []int32
}

func (l *otherLeader) String() string {
	if len(l.partitions) == 0 {
		return fmt.Sprintf("node %d", l.node)
	}
	return fmt.Sprintf("node %d, which leads %s", l.node, partitionsText(l.partitions))
}

// otherLeaders returns the other nodes that lead partitions of a topic. If some partitions
// have no leader now, it also returns ErrNoAnswer.
func (b *Broker) otherLeaders(name string) ([]*otherLeader, error) {
	t, err := b.Topic(name)
	if err != nil || t.source != nil {
		return nil, err
	}
	known := map[int32]*otherLeader{}
	var leaders []*otherLeader
	var without []int32
	for _, p := range t.Partitions() {
		at := p.Leader()
		switch {
		case at == b.Node():
			continue
		case at < 0:
			without = append(without, p.Number())
			continue
		case known[at] == nil:
			known[at] = &otherLeader{node: at}
			leaders = append(leaders, known[at])
		}
		known[at].partitions = append(known[at].partitions, p.Number())
	}
	if len(without) > 0 {
		err = fmt.Errorf("%w: no leader now of %s of %s", topic.ErrNoAnswer, partitionsText(without), name)
	}
	return leaders, err
}

// partitionsText names partitions.
func partitionsText(numbers []int32) string {
	word := "partition "
	if len(numbers) > 1 {
		word = "partitions "
	}
	return word + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// askLeader asks another leader. Errors: ErrNotFound, ErrNoAnswer, ErrRetry.
func (b *Broker) askLeader(ctx context.Context, of *otherLeader, request leaderRequest) (answer leaderAnswer, err error) {
	data, err := json.Marshal(request)
	if err == nil {
		data, err = b.cluster.Ask(ctx, of.node, data)
	}
	if err != nil {
		return answer, fmt.Errorf("%s: %w", of, err)
	}
	switch err = json.Unmarshal(data, &answer); {
	case err != nil:
		return answer, fmt.Errorf("%w: %s: %w", topic.ErrRetry, of, err)
	case answer.NotFound:
		return answer, fmt.Errorf("%s: %w", of, topic.ErrNotFound)
	case answer.Error != "":
		return answer, fmt.Errorf("%w: %s: %s", topic.ErrRetry, of, answer.Error)
	}
	return answer, nil
}

// answerLeader answers another node, about the partitions that this one leads.
func (b *Broker) answerLeader(ctx context.Context, data []byte) []byte {
	var request leaderRequest
	var answer leaderAnswer
	err := json.Unmarshal(data, &request)
	switch {
	case err != nil:
	case request.Sizes:
		answer.Sizes = b.sizesHere(ctx)
	case request.Ends:
		answer.Offsets, err = b.endsHere(request.Topic)
	case request.At != nil:
		answer.Offsets, err = b.offsetsHere(ctx, request.Topic, *request.At)
	case request.Reset != nil:
		answer.Offsets, err = b.resetHere(ctx, request.Topic, request.Reset)
	case request.Mark != nil:
		err = b.markHere(ctx, request.Topic, request.Mark)
	case request.Commit != nil:
		err = b.commitHere(ctx, request.Commit)
	case request.Letters != nil:
		err = b.lettersHere(ctx, request.Topic, request.Letters)
	case request.Limit > 0:
		answer.Waiting, err = b.delayedHere(request.Topic, request.Limit)
	default:
		err = b.cancelHere(ctx, request.Topic, request.Cancel)
	}
	if err != nil {
		answer.NotFound = errors.Is(err, topic.ErrNotFound)
		answer.Error = err.Error()[:min(maxAnswerError, len(err.Error()))]
	}
	text, err := json.Marshal(answer)
	if err != nil {
		b.log.Error("answer to a node", "error", err)
	}
	return text
}
