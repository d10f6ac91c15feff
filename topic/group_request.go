package topic

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"
)

// Bounds of what a group holds, beside those of [GroupsConfig].
const (
	// MaxGroupName is the most bytes of a group's name: it is part of a key of
	// the metadata.
	MaxGroupName = 255
	// maxInstanceName is the most bytes of a static member's instance id, and
	// of the client id that a member id begins with.
	maxInstanceName = 249
	// maxGroupProtocols is the most protocols that a member offers.
	maxGroupProtocols = 100
	// maxMemberBytes is the most bytes of all a member's protocols with their
	// metadata, and of one assignment.
	maxMemberBytes = 1 << 20
	// maxGroupBytes is the most bytes that all members of a group bring: as
	// much as fits into maxGroupRecord.
	maxGroupBytes = 3 << 20
	// maxGroupRecord is the most bytes of a group as it is stored, and of its
	// offsets in one topic: a value of [Meta].
	maxGroupRecord = 4 << 20
	// maxMemberTimeout is the longest rebalance timeout of a member; a longer
	// one counts as that.
	maxMemberTimeout = 24 * time.Hour
)

// Awaited is the answer to a request that may have to wait for others.
type Awaited[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newAwaited[T any]() *Awaited[T] { return &Awaited[T]{done: make(chan struct{})} }

// settled is an answer that is there already.
func settled[T any](value T, err error) *Awaited[T] {
	a := newAwaited[T]()
	a.settle(value, err)
	return a
}

func (a *Awaited[T]) settle(value T, err error) {
	a.value, a.err = value, err
	close(a.done)
}

// failAwaited answers a request that may not be there, and forgets it.
func failAwaited[T any](a **Awaited[T], err error) {
	if *a != nil {
		var none T
		(*a).settle(none, err)
		*a = nil
	}
}

// Done is closed when the answer is there.
func (a *Awaited[T]) Done() <-chan struct{} { return a.done }

// Wait returns the answer when it is there, or ctx's error.
func (a *Awaited[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// MemberIdentity is how a member names itself, in all but its first request.
type MemberIdentity struct {
	Group, Member string
	// Instance is the name of a static member; empty for others.
	Instance   string
	Generation int32
}

// GroupProtocol is a way to assign partitions that a member offers, with what
// the leader needs to know of the member: opaque here.
type GroupProtocol struct {
	Name     string `json:"name"`
	Metadata []byte `json:"metadata"`
}

// JoinRequest is what a member joins with.
type JoinRequest struct {
	Group string
	// Member is empty the first time. Instance is the name of a static member.
	Member, Instance string
	// Client is the client's id, Host where it connects from.
	Client, Host string
	// Session is how long the member may be silent, Rebalance how long it may
	// take to join again.
	Session, Rebalance time.Duration
	ProtocolType       string
	// Protocols are those it offers, the best first.
	Protocols []GroupProtocol
	// RequireMember lets a new member that is not static join with an id only:
	// it is given one, with ErrMemberIDRequired, and joins again.
	RequireMember bool
	// SkipsAssignment says that the member knows JoinResult.SkipAssignment.
	SkipsAssignment bool
}

// validate checks what does not depend on the group's state.
func (r JoinRequest) validate(config GroupsConfig) error {
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

// size returns the bytes of what a member brings.
func (r JoinRequest) size() int {
	size := len(r.Instance) + len(r.Client) + len(r.ProtocolType)
	for _, p := range r.Protocols {
		size += len(p.Name) + len(p.Metadata)
	}
	return size
}

// JoinResult is what a member is told when a generation begins.
type JoinResult struct {
	// Member is its id; set with ErrMemberIDRequired too.
	Member       string
	Generation   int32
	ProtocolType string
	// Protocol is the one that was chosen; Leader the member that assigns.
	Protocol, Leader string
	// Members are all members, told to the leader only.
	Members []JoinedMember
	// SkipAssignment tells a leader that came back that the assignment stands.
	SkipAssignment bool
}

// JoinedMember is a member as the leader sees it.
type JoinedMember struct {
	Member, Instance string
	// Metadata is that of the chosen protocol.
	Metadata []byte
}

// SyncRequest asks for a member's assignment; the leader's brings them all.
type SyncRequest struct {
	MemberIdentity
	// ProtocolType and Protocol are what the member believes; empty: no belief.
	ProtocolType, Protocol string
	// Assignments are opaque, by member: at most 1 MiB each.
	Assignments map[string][]byte
}

// SyncResult is a member's assignment.
type SyncResult struct {
	ProtocolType, Protocol string
	Assignment             []byte
}
