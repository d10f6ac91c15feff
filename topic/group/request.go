package group

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/sluice-project/sluice/topic"
)

// Bounds of a group, in addition to those of [GroupsConfig].
const (
	// MaxGroupName bounds the length of a group's name in bytes: it is part of a key of
	// the metadata.
	MaxGroupName = 255
	// maxInstanceName bounds a static member's instance id in bytes, and the client id
	// that a member id begins with.
	maxInstanceName = 249
	// maxGroupProtocols bounds the protocols that a member offers.
	maxGroupProtocols = 100
	// maxMemberBytes bounds the size of all of a member's protocols with their metadata,
	// and of one assignment.
	maxMemberBytes = 1 << 20
	// memberBytes is what a member counts for GroupsConfig.BytesTotal besides what it
	// brings, and what an id counts that was given out.
	memberBytes = 1 << 10
	// maxGroupBytes bounds the metadata of all members of a group: as much as fits into
	// maxGroupRecord.
	maxGroupBytes = 3 << 20
	// maxGroupRecord bounds the size of a stored group, and of its offsets in one topic:
	// each is a value of [topic.Meta].
	maxGroupRecord = 4 << 20
	// maxMemberTimeout is the longest rebalance timeout of a member; longer ones are
	// reduced to it.
	maxMemberTimeout = 24 * time.Hour
)

// Awaited is the answer to a request that may have to wait.
type Awaited[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newAwaited[T any]() *Awaited[T] { return &Awaited[T]{done: make(chan struct{})} }

// settled returns an Awaited that is answered already.
func settled[T any](value T, err error) *Awaited[T] {
	return &Awaited[T]{done: closed, value: value, err: err}
}

// closed is the channel of all answers that need not be awaited.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (a *Awaited[T]) settle(value T, err error) {
	a.value, a.err = value, err
	close(a.done)
}

// failAwaited fails a request, if there is one, and clears it.
func failAwaited[T any](a **Awaited[T], err error) {
	if *a != nil {
		var none T
		(*a).settle(none, err)
		*a = nil
	}
}

// Done is closed when the answer is available.
func (a *Awaited[T]) Done() <-chan struct{} { return a.done }

// Wait waits for the answer and returns it, or ctx's error.
func (a *Awaited[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// MemberIdentity identifies a member, in all but its first request.
type MemberIdentity struct {
	Group, Member string
	// Instance is the name of a static member; empty for others.
	Instance   string
	Generation int32
}

// Protocol is a way to assign partitions that a member offers, with the metadata that
// the leader needs about the member: opaque here.
type Protocol struct {
	Name     string `json:"name"`
	Metadata []byte `json:"metadata"`
}

// JoinRequest is a member's request to join.
type JoinRequest struct {
	Group string
	// Member is empty the first time. Instance is the name of a static member.
	Member, Instance string
	// Client is the client's id, Host its address.
	Client, Host string
	// Session is how long the member may be silent, Rebalance how long it may
	// take to join again.
	Session, Rebalance time.Duration
	ProtocolType       string
	// Protocols are the protocols that it offers, the preferred one first.
	Protocols []Protocol
	// RequireMember requires an id of a new member that is not static: it is given one,
	// with ErrMemberIDRequired, and joins again.
	RequireMember bool
	// SkipsAssignment reports that the member supports JoinResult.SkipAssignment.
	SkipsAssignment bool
}

// validate checks the request without the group's state.
func (r JoinRequest) validate(config topic.GroupsConfig) error {
	if r.Session < config.MinSession || r.Session > config.MaxSession {
		return fmt.Errorf("%w: %v; want %v to %v", ErrInvalidSession, r.Session, config.MinSession, config.MaxSession)
	}
	if len(r.Instance) > maxInstanceName {
		return fmt.Errorf("%w: instance id of %d bytes; want at most %d", ErrInvalidGroupRequest, len(r.Instance), maxInstanceName)
	}
	if len(r.Protocols) > maxGroupProtocols {
		return fmt.Errorf("%w: %d protocols; want at most %d", ErrInvalidGroupRequest, len(r.Protocols), maxGroupProtocols)
	}
	if r.ProtocolType == "" || len(r.Protocols) == 0 {
		return fmt.Errorf("%w: want a protocol type and a protocol", ErrInconsistentProtocol)
	}
	texts := []string{r.Instance, r.ProtocolType}
	for _, p := range r.Protocols {
		texts = append(texts, p.Name)
	}
	if size := r.size(); size > maxMemberBytes {
		return fmt.Errorf("%w: member brings %d bytes; want at most %d", ErrGroupTooLarge, size, maxMemberBytes)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidGroupRequest, text)
		}
	}
	return nil
}

// size returns the size of a member's metadata in bytes.
func (r JoinRequest) size() int {
	size := len(r.Instance) + len(r.Client) + len(r.ProtocolType)
	for _, p := range r.Protocols {
		size += len(p.Name) + len(p.Metadata)
	}
	return size
}

// JoinResult is a member's answer when a generation begins.
type JoinResult struct {
	// Member is the member's id; set with ErrMemberIDRequired too.
	Member       string
	Generation   int32
	ProtocolType string
	// Protocol is the chosen protocol; Leader is the member that assigns.
	Protocol, Leader string
	// Members lists all members, for the leader only.
	Members []JoinedMember
	// SkipAssignment tells a leader that came back that the assignment stays.
	SkipAssignment bool
}

// JoinedMember is a member as the leader sees it.
type JoinedMember struct {
	Member, Instance string
	// Metadata is the member's metadata of the chosen protocol.
	Metadata []byte
}

// SyncRequest asks for a member's assignment; the leader's request contains them all.
type SyncRequest struct {
	MemberIdentity
	// ProtocolType and Protocol are the member's view; empty: not checked.
	ProtocolType, Protocol string
	// Assignments are opaque, by member: at most 1 MiB each.
	Assignments map[string][]byte
}

// SyncResult is a member's assignment.
type SyncResult struct {
	ProtocolType, Protocol string
	Assignment             []byte
}
