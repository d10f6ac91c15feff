package topic

import (
	"context"
	"fmt"
	"slices"
)

// Single is the Cluster of a store that runs on one node: that is node 1, which keeps
// and leads all logs. The zero value is ready to use.
type Single struct{}

var _ Cluster = Single{}

// singleNode is the number of the only node.
const singleNode = 1

// Node returns 1.
func (Single) Node() int32 { return singleNode }

// Alone returns true.
func (Single) Alone() bool { return true }

// Alive returns the only node.
func (Single) Alive() []int32 { return []int32{singleNode} }

// Leads returns true.
func (Single) Leads(string) bool { return true }

// Watch has nothing to signal.
func (Single) Watch(func()) (cancel func()) { return func() {} }

// Followed has no other node to tell.
func (Single) Followed(uint64) {}

// AwaitFollowed returns at once.
func (Single) AwaitFollowed(context.Context, uint64) error { return nil }

// Replicas returns the only node.
func (Single) Replicas(context.Context, string) (Replicas, error) {
	return Replicas{Leader: singleNode, Nodes: []int32{singleNode}, Current: []int32{singleNode}}, nil
}

// Place refuses any other node.
func (Single) Place(_ context.Context, _ string, nodes []int32) (placed bool, err error) {
	if !slices.Equal(nodes, []int32{singleNode}) {
		return false, fmt.Errorf("%w: nodes %v; there is one, so want [%d]", ErrInvalidAssignment, nodes, singleNode)
	}
	return true, nil
}

// Resign has no other node to pass a log to.
func (Single) Resign(context.Context, string, int32) error { return nil }

// Leave has no other node to pass logs to.
func (Single) Leave(context.Context) error { return nil }

// Ask returns ErrNoAnswer.
func (Single) Ask(_ context.Context, node int32, _ []byte) ([]byte, error) {
	return nil, fmt.Errorf("%w: %w: %d", ErrNoAnswer, ErrNoNode, node)
}

// Answer has no other node that asks.
func (Single) Answer(func(context.Context, []byte) []byte) (cancel func(), err error) {
	return func() {}, nil
}

// Remove returns ErrNoNode.
func (Single) Remove(_ context.Context, node int32) error {
	return fmt.Errorf("%w: %d", ErrNoNode, node)
}
