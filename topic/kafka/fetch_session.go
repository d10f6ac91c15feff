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
	// maxSessions is how many fetch sessions the server remembers. When there
	// are as many, a new one takes the place of the one that was not used for
	// longest, if that was more than evictAfter ago. If none is that old, the
	// client is answered without a session: it then names all partitions each time.
	maxSessions = 1000
	evictAfter  = 2 * time.Minute
	// maxSessionPartitions bounds the partitions of all sessions together: a
	// session that would go beyond it is not made, or ends.
	maxSessionPartitions = 200_000
)

// Epochs of a session that stand for something else.
const (
	epochNoSession  = -1
	epochNewSession = 0
)

// fetchKey names a partition in a fetch: by the topic's id from version 13 on,
// by its name before.
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
	// told, and what follows, is what the client was told last, so that an incremental answer
	// tells only what is new.
	told           bool
	highWatermark  int64
	logStartOffset int64
}

// fetchSession is what the server remembers of a consumer's fetches (KIP-227).
type fetchSession struct {
	id       int32
	place    *list.Element
	lastUsed time.Time
	counted  int // partitions, as the sum of all sessions has them

	// mu is held as long as a fetch of this session is under way.
	mu    sync.Mutex
	epoch int32
	// order has the partitions in the order in which they are read next.
	order []*fetchPartition
	byKey map[fetchKey]*fetchPartition
}

// fetchSessions are those of all consumers.
type fetchSessions struct {
	mu         sync.Mutex
	byID       map[int32]*fetchSession
	used       list.List // of *fetchSession, the one that was used longest ago first
	partitions int
}

func newFetchSessions() *fetchSessions { return &fetchSessions{byID: map[int32]*fetchSession{}} }

// fetchWant is what one fetch wants to read.
type fetchWant struct {
	partitions []*fetchPartition
	// session is nil if the client has none; incremental tells whether the
	// answer may leave out partitions of which there is no news.
	session     *fetchSession
	incremental bool
}

// open returns what a fetch wants, from its session where it has one. The
// session is locked until the fetch calls done.
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
func wanted(r *kmsg.FetchRequest) (partitions []*fetchPartition) {
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

// begin makes a session, or returns nil if there is no place for one.
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

// use returns a session, which becomes the one that was used last.
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

// remove forgets a session. F is locked.
func (f *fetchSessions) remove(s *fetchSession) {
	delete(f.byID, s.id)
	f.used.Remove(s.place)
	f.partitions -= s.counted
	s.counted = 0
}

// resized counts a session's partitions again. If all have too many, the
// session ends.
func (f *fetchSessions) resized(s *fetchSession) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[s.id] != s {
		return true // it has ended meanwhile, and holds memory for this fetch only
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

// update takes over what an incremental fetch changes.
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

// answered notes what the client is told, and puts the partitions of which it
// got records at the end: next time it is the others' turn. It returns the
// session's id.
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

// news tells whether an incremental answer has to name a partition, and notes
// what it says.
func (p *fetchPartition) news(now *kmsg.FetchResponseTopicPartition) bool {
	same := p.told && now.ErrorCode == 0 && now.HighWatermark == p.highWatermark && now.LogStartOffset == p.logStartOffset
	p.told = now.ErrorCode == 0 // an error is told again until it is gone
	p.highWatermark, p.logStartOffset = now.HighWatermark, now.LogStartOffset
	return !same
}
