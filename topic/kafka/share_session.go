package kafka

import (
	"context"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
)

// maxShareSessions bounds the members of share groups with a session: beyond it, the error is
// SHARE_SESSION_LIMIT_REACHED. maxSharePartitions bounds the partitions of one.
const (
	maxShareSessions   = 2000
	maxSharePartitions = 10_000
)

// shareMember identifies the session of a member of a share group: it has one with each server.
type shareMember struct{ group, member string }

// shareSession is what a member of a share group reads here (KIP-932). It ends with the connection
// that began it, and then its records are available to others.
type shareSession struct {
	shareMember
	conn *connection
	// over is closed when the session is to end, so that a fetch in flight does not wait for records.
	over     chan struct{}
	overOnce sync.Once

	// mu is held while a request of the session is in flight.
	mu    sync.Mutex
	epoch int32
	ended bool
	// order has the partitions in the order of the next read; all has those that were forgotten
	// too, whose records the member may still have.
	order []*sharePart
	all   map[fetchKey]*sharePart
}

// sharePart is a partition of a session.
type sharePart struct {
	fetchKey
	reads bool
	// share is nil until the partition is used, and after an error.
	share *broker.Share
}

// shareSessions are the sessions of all members.
type shareSessions struct {
	mu       sync.Mutex
	byMember map[shareMember]*shareSession
}

func newShareSessions() *shareSessions {
	return &shareSessions{byMember: map[shareMember]*shareSession{}}
}

// open returns the session of a request, at the next epoch: a new one for epoch 0, if may begin is set.
// It is locked until done.
func (f *shareSessions) open(c *connection, group, member *string, epoch int32, mayBegin bool) (*shareSession, error) {
	if group == nil || member == nil || *member == "" {
		return nil, errNoMember
	}
	of := shareMember{*group, *member}
	if epoch == epochNewSession && mayBegin {
		return f.begin(c, of)
	}
	f.mu.Lock()
	s := f.byMember[of]
	f.mu.Unlock()
	switch {
	case s == nil:
		return nil, errNoShareSession
	case !s.mu.TryLock():
		return nil, fail(kerr.InvalidShareSessionEpoch, "another request of the share session is under way")
	case s.ended:
		s.mu.Unlock()
		return nil, errNoShareSession
	case epoch != epochNoSession && epoch != s.epoch:
		s.mu.Unlock()
		return nil, fail(kerr.InvalidShareSessionEpoch, "the share session is at another epoch")
	}
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1
	}
	return s, nil
}

var (
	errNoShareSession = fail(kerr.ShareSessionNotFound, "the share session does not exist any more")
	errNoMember       = fail(kerr.InvalidRequest, "want a group and a member id")
)

// begin creates a session. It ends another one of the member.
func (f *shareSessions) begin(c *connection, of shareMember) (*shareSession, error) {
	if err := group.CheckName(of.group); err != nil {
		return nil, fail(kerr.InvalidGroupID, err.Error())
	}
	f.mu.Lock()
	old := f.byMember[of]
	if old == nil && len(f.byMember) >= maxShareSessions {
		f.mu.Unlock()
		return nil, fail(kerr.ShareSessionLimitReached, "too many members of share groups")
	}
	s := &shareSession{shareMember: of, conn: c, epoch: 1, over: make(chan struct{}), all: map[fetchKey]*sharePart{}}
	s.mu.Lock()
	f.byMember[of] = s
	f.mu.Unlock()
	if old != nil {
		f.end(old)
	}
	if c.ctx.Err() != nil { // leave may have passed already
		s.mu.Unlock()
		f.end(s)
		return nil, errNoShareSession
	}
	return s, nil
}

// end removes a session, once its request in flight has ended, and releases its records.
func (f *shareSessions) end(s *shareSession) {
	f.mu.Lock()
	if f.byMember[s.shareMember] == s {
		delete(f.byMember, s.shareMember)
	}
	f.mu.Unlock()
	s.overOnce.Do(func() { close(s.over) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, p := range s.all {
		if p.share != nil {
			p.share.Release(s.member)
			p.share.Close()
		}
	}
	s.order, s.all = nil, nil
}

// leave ends the sessions that a connection has begun.
func (f *shareSessions) leave(c *connection) {
	var left []*shareSession
	f.mu.Lock()
	for _, s := range f.byMember {
		if s.conn == c {
			left = append(left, s)
		}
	}
	f.mu.Unlock()
	for _, s := range left {
		f.end(s)
	}
}

// part returns a partition of the session, which is added; with reads, it is one that is read
// from now on.
func (s *shareSession) part(id topic.ID, number int32, reads bool) (*sharePart, error) {
	key := fetchKey{id: id, partition: number}
	p := s.all[key]
	if p == nil {
		if len(s.all) >= maxSharePartitions {
			return nil, fail(kerr.InvalidRequest, "the share session has too many partitions")
		}
		p = &sharePart{fetchKey: key}
		s.all[key] = p
	}
	if reads && !p.reads {
		p.reads = true
		s.order = append(s.order, p)
	}
	return p, nil
}

// forget ends reading a partition. The member keeps the records that it has.
func (s *shareSession) forget(id topic.ID, number int32) {
	if p := s.all[fetchKey{id: id, partition: number}]; p != nil && p.reads {
		p.reads = false
		s.order = slices.DeleteFunc(s.order, func(other *sharePart) bool { return other == p })
	}
}

// open returns what the group does in the partition.
func (p *sharePart) open(ctx context.Context, c *call, name string) (*broker.Topic, *broker.Share, error) {
	t, err := c.topicByID(p.id)
	if err == nil && p.share == nil {
		p.share, err = t.Share(ctx, p.partition, name)
	}
	return t, p.share, err
}

// drop makes the next request look for the partition again.
func (p *sharePart) drop() {
	if p.share != nil {
		p.share.Close()
		p.share = nil
	}
}
