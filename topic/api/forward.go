package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Only the leader of a partition knows its delayed records. Another node forwards the
// request to the leader, once.

// forwardedHeader marks a request of another node: the answer covers only the
// partitions that this node leads.
const forwardedHeader = "Sluice-Forwarded"

const (
	// forwardTime bounds the request to another node, and maxForwarded the bytes
	// of its answer.
	forwardTime  = 10 * time.Second
	maxForwarded = 4 << 20
	// maxNodeProblem is the most bytes of another node's error text.
	maxNodeProblem = 1 << 10
)

// Forwardable is the input of a request that a node may forward to another.
type Forwardable struct {
	Forwarded string `header:"Sluice-Forwarded" doc:"Set by a node that asks another one: the answer is about the partitions which that one leads."`
}

func (f Forwardable) forwarded() bool { return f.Forwarded != "" }

// leader is another node that leads partitions of a topic.
type leader struct {
	topic.Node
	partitions []int32
}

// String names it and what it leads, for errors.
func (l *leader) String() string {
	return fmt.Sprintf("node %d at %s, which leads %s %s", l.ID, l.HTTP, plural(len(l.partitions), "partition"), numbers(l.partitions))
}

// errNoLeader: partitions have no leader at the moment, or an unknown one. errNode:
// another node failed.
var (
	errNoLeader = errors.New("no leader now")
	errNode     = errors.New("another node")
)

// otherLeaders returns the other nodes that lead partitions of a topic. With
// errNoLeader it returns those that are known.
func (s *server) otherLeaders(name string) ([]*leader, error) {
	t, err := s.broker.Topic(name)
	if err != nil || t == nil || t.Source() != nil {
		return nil, err
	}
	known := map[int32]*leader{}
	for _, node := range s.broker.Nodes() {
		known[node.ID] = &leader{Node: node}
	}
	var leaders []*leader
	var without []int32
	for _, p := range t.Partitions() {
		at := p.Leader()
		if at == s.broker.Node() {
			continue
		}
		l := known[at]
		if l == nil || l.HTTP == "" {
			without = append(without, p.Number())
			continue
		}
		if l.partitions == nil {
			leaders = append(leaders, l)
		}
		l.partitions = append(l.partitions, p.Number())
	}
	if len(without) > 0 {
		err = fmt.Errorf("%w: %s of %s %s", errNoLeader, plural(len(without), "partition"), name, numbers(without))
	}
	return leaders, err
}

// forwardAll calls nodes concurrently, and returns the first error in their order.
func (s *server) forwardAll(ctx context.Context, leaders []*leader, ask func(ctx context.Context, i int) error) error {
	errs := make([]error, len(leaders))
	var asking sync.WaitGroup
	for i := range leaders {
		asking.Go(func() { errs[i] = ask(ctx, i) })
	}
	asking.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// forward makes a request to another node, and reads the answer into a JSON
// object unless it is nil. Errors: topic.ErrNotFound, errNode.
func (s *server) forward(ctx context.Context, to *leader, method, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, forwardTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(to.HTTP, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errNode, to, err)
	}
	request.Header.Set(forwardedHeader, "1")
	response, err := s.nodes.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errNode, to, err)
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxForwarded+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", errNode, to, err)
	case len(body) > maxForwarded:
		return fmt.Errorf("%w: %s: its answer is larger than %d bytes", errNode, to, maxForwarded)
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %s: %w", errNode, to, topic.ErrNotFound)
	case response.StatusCode >= http.StatusMultipleChoices:
		var problem Problem
		_ = json.Unmarshal(body, &problem) // without a detail the status says enough
		return fmt.Errorf("%w: %s: %s %s", errNode, to, response.Status, problem.Detail[:min(maxNodeProblem, len(problem.Detail))])
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %s: %w", errNode, to, err)
	}
	return nil
}

// newNodeClient returns the client for other nodes. Requests are rare: it keeps no
// connection, and follows no redirect.
func newNodeClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: forwardTime},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// plural returns a word for one or for several.
func plural(count int, one string) string {
	if count == 1 {
		return one
	}
	return one + "s"
}

// numbers returns a list as text.
func numbers(list []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}
