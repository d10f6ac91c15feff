package kafka

import (
	"container/list"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

const (
	// maxSessions bounds the fetch sessions. A further one replaces the least recently used, if
	// that was unused for evictAfter. Otherwise the client gets no session, and names all
	// partitions each time.
	maxSessions = 1000
	evictAfter  = 2 * time.Minute
	// maxSessionPartitions bounds the partitions of all sessions together: a session that would
	// exceed it is not created, or ends.
	maxSessionPartitions = 200_000
)

// Special epochs of a session.
const (
	epochNoSession  = -1
	epochNewSession = 0
)

// fetchKey identifies a partition in a fetch: by the topic's id from version 13 on, by its name
// before.
type fetchKey struct {
	id        topic.ID
	name      string
	partition int32
}

// fetchPartition is a partition that a client wants to read.
type fetchPartition struct {
	fetchKey
	offset   int64
	maxBytes int32
	epoch    int32
	// told, and the fields after it, are the last values that the client received, so that an
	// incremental answer has changes only.
	told           bool
	highWatermark  int64
	logStartOffset int64
}

// fetchSession is the fetch session of a consumer (KIP-227).
type fetchSession struct {
	id       int32
	place    *list.Element
	lastUsed time.Time
	counted  int // number of partitions, as counted in the sum of all sessions

	// mu is held while a fetch of this session is in flight.
	mu    sync.Mutex
	epoch int32
	// order has the partitions in the order of the next read.
	order []*fetchPartition
	byKey map[fetchKey]*fetchPartition
}

// fetchSessions are the sessions of all consumers.
type fetchSessions struct {
	mu         sync.Mutex
	byID       map[int32]*fetchSession
	used       list.List // of *fetchSession, the least recently used first
	partitions int
}

func newFetchSessions() *fetchSessions { return &fetchSessions{byID: map[int32]*fetchSession{}} }

// fetchWant is what one fetch wants to read.
type fetchWant struct {
	partitions []*fetchPartition
	// session is nil if the client has none; incremental reports whether the answer may leave out
	// partitions without news.
	session     *fetchSession
	incremental bool
}

// open returns the partitions of a fetch, from its session if it has one. The session is locked
// until the fetch calls done.
func (f *fetchSessions) open(r *kmsg.FetchRequest, now time.Time) (fetchWant, error) {
	if r.Version < 7 || r.SessionEpoch == epochNoSession || r.SessionEpoch == epochNewSession {
		if r.SessionID != 0 {
			f.end(r.SessionID)
		}
		want := fetchWant{partitions: wanted(r)}
		if r.Version >= 7 && r.SessionEpoch == epochNewSession {
			want.session = f.begin(want.partitions, now)
		}
		return want, nil
	}
	s := f.use(r.SessionID, now)
	switch {
	case s == nil:
		return fetchWant{}, fail(kerr.FetchSessionIDNotFound, "the fetch session does not exist any more")
	case !s.mu.TryLock():
		return fetchWant{}, fail(kerr.InvalidFetchSessionEpoch, "another fetch of the session is under way")
	case r.SessionEpoch != s.epoch:
		s.mu.Unlock()
		return fetchWant{}, fail(kerr.InvalidFetchSessionEpoch, "the fetch session is at another epoch")
	}
	s.update(r)
	if !f.resized(s) {
		s.mu.Unlock()
		return fetchWant{}, fail(kerr.FetchSessionIDNotFound, "fetch sessions have too many partitions")
	}
	return fetchWant{partitions: s.order, session: s, incremental: true}, nil
}

// wanted returns the partitions that a request names.
func wanted(r *kmsg.FetchRequest) []*fetchPartition {
	count := 0
	for i := range r.Topics {
		count += len(r.Topics[i].Partitions)
	}
	partitions := make([]*fetchPartition, 0, count)
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			partitions = append(partitions, &fetchPartition{
				fetchKey: fetchKey{t.TopicID, t.Topic, p.Partition},
				offset:   p.FetchOffset, maxBytes: p.PartitionMaxBytes, epoch: p.CurrentLeaderEpoch,
			})
		}
	}
	return partitions
}

// begin creates a session, or returns nil if there is no space for one.
func (f *fetchSessions) begin(partitions []*fetchPartition, now time.Time) *fetchSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.byID) >= maxSessions {
		oldest := f.used.Front().Value.(*fetchSession)
		if now.Sub(oldest.lastUsed) < evictAfter {
			return nil
		}
		f.remove(oldest)
	}
	if f.partitions+len(partitions) > maxSessionPartitions {
		return nil
	}
	s := &fetchSession{lastUsed: now, counted: len(partitions), byKey: map[fetchKey]*fetchPartition{}}
	for s.id == 0 || f.byID[s.id] != nil {
		s.id = rand.Int32N(math.MaxInt32)
	}
	for _, p := range partitions {
		s.put(p)
	}
	f.partitions += s.counted
	f.byID[s.id], s.place = s, f.used.PushBack(s)
	s.mu.Lock()
	return s
}

// use returns a session and marks it as the most recently used.
func (f *fetchSessions) use(id int32, now time.Time) *fetchSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.byID[id]
	if s != nil {
		s.lastUsed = now
		f.used.MoveToBack(s.place)
	}
	return s
}

// end removes a session, if it exists.
func (f *fetchSessions) end(id int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.byID[id]; s != nil {
		f.remove(s)
	}
}

// remove removes a session. f is locked.
func (f *fetchSessions) remove(s *fetchSession) {
	delete(f.byID, s.id)
	f.used.Remove(s.place)
	f.partitions -= s.counted
	s.counted = 0
}

// resized counts a session's partitions again. If the sum of all exceeds the bound, the session
// ends.
func (f *fetchSessions) resized(s *fetchSession) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[s.id] != s {
		return true // it has ended in the meantime, and serves this fetch only
	}
	f.partitions += len(s.order) - s.counted
	s.counted = len(s.order)
	if f.partitions > maxSessionPartitions {
		f.remove(s)
		return false
	}
	return true
}

// put adds a partition, or changes how it is read.
func (s *fetchSession) put(p *fetchPartition) {
	if known := s.byKey[p.fetchKey]; known != nil {
		known.offset, known.maxBytes, known.epoch = p.offset, p.maxBytes, p.epoch
		return
	}
	s.byKey[p.fetchKey] = p
	s.order = append(s.order, p)
}

// update applies the changes of an incremental fetch.
func (s *fetchSession) update(r *kmsg.FetchRequest) {
	for _, t := range r.ForgottenTopics {
		for _, number := range t.Partitions {
			delete(s.byKey, fetchKey{t.TopicID, t.Topic, number})
		}
	}
	if len(r.ForgottenTopics) > 0 {
		s.order = slices.DeleteFunc(s.order, func(p *fetchPartition) bool { return s.byKey[p.fetchKey] != p })
	}
	for _, p := range wanted(r) {
		s.put(p)
	}
}

// answered records the answer, and moves the partitions with records to the end, so that the others
// are read first next time. It returns the session's id.
func (w fetchWant) answered(got map[*fetchPartition]bool) int32 {
	s := w.session
	if s == nil {
		return 0
	}
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1
	}
	slices.SortStableFunc(s.order, func(a, b *fetchPartition) int { return rank(got[a]) - rank(got[b]) })
	return s.id
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// done ends the fetch.
func (w fetchWant) done() {
	if w.session != nil {
		w.session.mu.Unlock()
	}
}

// news reports whether an incremental answer has to include a partition, and records its values.
func (p *fetchPartition) news(now *kmsg.FetchResponseTopicPartition) bool {
	same := p.told && now.ErrorCode == 0 && now.HighWatermark == p.highWatermark && now.LogStartOffset == p.logStartOffset
	p.told = now.ErrorCode == 0 // an error is repeated until it is gone
	p.highWatermark, p.logStartOffset = now.HighWatermark, now.LogStartOffset
	return !same
}
