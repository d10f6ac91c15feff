package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/share"
	"github.com/sluice-project/sluice/topic/spans"
)

// windowsAtOnce is how many windows of one request are written at a time.
const windowsAtOnce = 8

// ShareFetch: versions 1 to 2.
//
// Acknowledges records of a share group, and gives the member others, which no other member gets until its
// lock ends. A session (see share_session.go) has the partitions to read: a request names new ones, and those
// whose records it acknowledges. The answer comes when what it tells is durable. It waits for
// records, at most for max wait and 5 minutes, and not for min bytes, since records that wait would be locked.
// Max records and max bytes bound the answer, except that it has at least one batch, and whole batches. It has
// the partitions with records, with errors, and with acknowledgements. Batch size has no effect.
//
//   - 2: max records may bound the records exactly (acquire mode 1); locks can be renewed, in a
//     request that reads nothing.
//   - 0: of a preview of Kafka, not supported.
func (s *Server) shareFetch(c *call, r *kmsg.ShareFetchRequest) answer {
	began := time.Now()
	return func(ctx context.Context) kmsg.Response {
		response := &shareFetchResponse{ShareFetchResponse: r.ResponseKind().(*kmsg.ShareFetchResponse)}
		response.AcquisitionLockTimeoutMillis = s.lockTime(ctx, r.GroupID)
		err := c.authorize(auth.Group, orEmpty(r.GroupID))
		var session *shareSession
		if err == nil {
			session, err = s.shares.open(c.session, r.GroupID, r.MemberID, r.ShareSessionEpoch, true)
		}
		if err != nil {
			response.ErrorCode, response.ErrorMessage = code(err), message(err)
			return response
		}
		defer session.done(s.shares, r.ShareSessionEpoch)
		wait := min(time.Duration(max(r.MaxWaitMillis, 0))*time.Millisecond, maxFetchWait)
		f := &sharing{server: s, call: c, session: session, deadline: began.Add(wait), byPart: map[*sharePart]*shared{}, moved: make(chan struct{}, 1)}
		f.most = broker.ShareMost{Records: int(r.MaxRecords), Strict: r.ShareAcquireMode == acquireStrict}
		meter := c.meter(auth.ConsumerRate)
		f.limit = min(int64(max(r.MaxBytes, 0)), int64(s.options.MaxFetchBytes), mayAnswer(meter))
		defer f.stop()
		f.take(ctx, r)
		if err := c.memory.await(int64(len(session.all)) * answerCost); err != nil {
			response.ErrorCode = code(err)
			return response
		}
		if r.ShareSessionEpoch != epochNoSession && !r.IsRenewAck && f.limit > 0 && r.MaxRecords > 0 {
			f.run(ctx)
		} else {
			f.await(ctx)
		}
		response.ThrottleMillis = c.spend(meter, f.found)
		f.fill(response)
		if s.spans != nil && f.found > 0 {
			batch := f.batch(func(p *shared) bool { return p.got.Size > 0 })
			s.spans.Polled(began, &batch, f.link)
		}
		return response
	}
}

// batch returns what a span says of those of the partitions.
func (f *sharing) batch(of func(p *shared) bool) spans.Batch {
	batch := spans.Batch{Client: f.call.client, Group: f.session.group}
	for _, p := range f.parts {
		if of(p) {
			name := ""
			if p.topic != nil {
				name = p.topic.Name()
			}
			batch.Add(name, p.got.Size, p.ackErr)
		}
	}
	return batch
}

// link adds the traces of the records in the answer.
func (f *sharing) link(links *spans.Links) {
	for _, p := range f.parts {
		links.Read(p.got.Data, func(offset int64) bool {
			return slices.ContainsFunc(p.got.Deliveries, func(d share.Delivery) bool { return d.First <= offset && offset <= d.Last })
		})
	}
}

// lockTime returns how long members of a group have records, in milliseconds.
func (s *Server) lockTime(ctx context.Context, name *string) int32 {
	settings, err := s.broker.ShareSettings(ctx, orEmpty(name))
	if err != nil {
		settings.Lock = s.broker.Config().Shares.Lock
	}
	return int32(settings.Lock.Milliseconds())
}

// acquireStrict is the mode in which max records is exact.
const acquireStrict = 1

// sharing is a request of a share session in flight.
type sharing struct {
	server   *Server
	call     *call
	session  *shareSession
	deadline time.Time
	most     broker.ShareMost
	// limit bounds the bytes of the answer; found is their number, held the reserved memory.
	limit, found, held int64
	records            int64

	byPart map[*sharePart]*shared
	parts  []*shared // those of byPart, in the order in which they came
	failed bool      // a partition cannot be read

	cancels []func()
	moved   chan struct{}
}

// shared is a partition in a request of a share session.
type shared struct {
	part  *sharePart
	topic *broker.Topic
	// share is what the group does there. A request that ends with an error drops it.
	share *broker.Share
	// told reports whether the request acknowledges records; ackErr is why that failed.
	told        bool
	ackErr, err error
	version     uint64 // to be awaited; 0: nothing
	got         broker.Shared
}

// of returns a partition in the request.
func (f *sharing) of(ctx context.Context, p *sharePart) *shared {
	known := f.byPart[p]
	if known == nil {
		known = &shared{part: p}
		known.topic, known.share, known.err = p.open(ctx, f.call, f.session.group)
		f.byPart[p], f.parts = known, append(f.parts, known)
	}
	return known
}

// take takes over the partitions of a fetch, and its acknowledgements.
func (f *sharing) take(ctx context.Context, r *kmsg.ShareFetchRequest) {
	for _, t := range r.ForgottenTopicsData {
		for _, number := range t.Partitions {
			f.session.forget(t.TopicID, number)
		}
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			all := make([]share.Acknowledgement, len(p.AcknowledgementBatches))
			for i, b := range p.AcknowledgementBatches {
				all[i] = acknowledgement(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes)
			}
			f.acknowledge(ctx, t.TopicID, p.Partition, true, all)
		}
	}
}

func acknowledgement(first, last int64, types []int8) share.Acknowledgement {
	a := share.Acknowledgement{First: first, Last: last, Kinds: make([]share.Kind, len(types))}
	for i, kind := range types {
		a.Kinds[i] = share.Kind(kind)
	}
	return a
}

// acknowledge acknowledges records of a partition.
func (f *sharing) acknowledge(ctx context.Context, id topic.ID, number int32, reads bool, all []share.Acknowledgement) {
	part, err := f.session.part(id, number, reads)
	if err != nil {
		part = &sharePart{fetchKey: fetchKey{id: id, partition: number}}
		f.byPart[part] = &shared{part: part, err: err}
		f.parts = append(f.parts, f.byPart[part])
	}
	p := f.of(ctx, part)
	if len(all) == 0 {
		return
	}
	p.told = true
	if p.ackErr = p.err; p.ackErr == nil {
		p.version, p.ackErr = p.share.Acknowledge(f.session.member, all)
	}
}

// run acquires records until there are some, or the time is over.
func (f *sharing) run(ctx context.Context) {
	for _, part := range f.session.order {
		f.of(ctx, part)
	}
	for first := true; ; first = false {
		again := f.acquire(ctx)
		f.await(ctx)
		if f.failed || f.found > 0 || !time.Now().Before(f.deadline) || ctx.Err() != nil {
			return
		}
		if first {
			f.watch()
			continue // what has come before the watch
		}
		if !again && !f.wait(ctx) {
			return
		}
	}
}

// acquire acquires as many records as fit into the answer, and reports whether another call may
// find some at once.
func (f *sharing) acquire(ctx context.Context) (again bool) {
	waiting, cancel := context.WithDeadline(ctx, f.deadline.Add(lookAgain))
	held, err := f.server.answers.Take(waiting, min(leastFetch, f.limit), f.limit)
	cancel()
	if err != nil {
		return false // without memory in time the answer has no records
	}
	limit := min(held, f.limit)
	order := f.session.order
	for i, part := range order {
		p := f.byPart[part]
		if p.err != nil {
			f.failed = true
			continue
		}
		most := f.most
		most.Bytes, most.Records = int(limit-f.found), most.Records-int(f.records)
		if most.Bytes <= 0 || most.Records <= 0 {
			break
		}
		if p.got, p.err = p.share.Acquire(ctx, f.session.member, most); p.err != nil {
			f.failed = true
			continue
		}
		again = again || p.got.More
		if f.found += int64(p.got.Size); p.got.Size > 0 {
			p.version = p.got.Version
			f.session.order = slices.Concat(order[i+1:], order[:i+1]) // others come first the next time
		}
		for _, d := range p.got.Deliveries {
			f.records += d.Last - d.First + 1
		}
	}
	// Unused memory goes back. One batch may have exceeded the limit.
	f.server.answers.Change(held - f.found)
	f.held = f.found
	return again
}

// await waits until all windows that have changed are durable.
func (f *sharing) await(ctx context.Context) {
	changed := slices.DeleteFunc(slices.Clone(f.parts), func(p *shared) bool { return p.version == 0 })
	if len(changed) == 1 { // most often
		changed[0].await(ctx)
	} else {
		var writes errgroup.Group
		writes.SetLimit(windowsAtOnce)
		for _, p := range changed {
			writes.Go(func() error {
				p.await(ctx)
				return nil
			})
		}
		_ = writes.Wait()
	}
	for _, p := range f.parts {
		f.failed = f.failed || p.err != nil
	}
}

// await waits until the window is durable.
func (p *shared) await(ctx context.Context) {
	if err := p.share.Await(ctx, p.version); err != nil {
		p.err, p.got = err, broker.Shared{}
		if p.told && p.ackErr == nil {
			p.ackErr = err
		}
	}
	p.version = 0
}

// watch subscribes to what may be acquired.
func (f *sharing) watch() {
	signal := func() {
		select {
		case f.moved <- struct{}{}:
		default:
		}
	}
	for _, p := range f.parts {
		if p.err == nil {
			f.cancels = append(f.cancels, p.share.Watch(signal))
		}
	}
}

func (f *sharing) stop() {
	for _, cancel := range f.cancels {
		cancel()
	}
	f.server.answers.Change(f.held)
}

// wait waits until there may be records. It returns false when the answer is due.
func (f *sharing) wait(ctx context.Context) bool {
	over := time.NewTimer(time.Until(f.deadline))
	defer over.Stop()
	unlocked := time.NewTimer(time.Until(f.unlocked()))
	defer unlocked.Stop()
	look := time.NewTicker(stallTime)
	defer look.Stop()
	for {
		select {
		case <-f.moved:
			return true
		case <-unlocked.C:
			return true
		case <-over.C:
			return false
		case <-f.session.over:
			return false
		case <-f.server.draining:
			return false
		case <-ctx.Done():
			return false
		case <-look.C:
			if f.call.session.obstructs() {
				return false
			}
		}
	}
}

// unlocked returns when the first lock of another member ends, at most the deadline.
func (f *sharing) unlocked() time.Time {
	first := f.deadline
	for _, p := range f.parts {
		if next := p.got.Next; p.err == nil && !next.IsZero() && next.Before(first) {
			first = next
		}
	}
	return first
}

// done ends a request, and with it the session if that was its last one.
func (s *shareSession) done(all *shareSessions, epoch int32) {
	s.mu.Unlock()
	if epoch == epochNoSession {
		all.end(s)
	}
}

// fill fills the answer to a fetch.
func (f *sharing) fill(response *shareFetchResponse) {
	// The fields around the records take memory without waiting, since the records have theirs.
	around := int64(len(f.parts)) * answerCost
	f.server.answers.Change(-around)
	f.call.memory.held, f.held = f.call.memory.held+f.held+around, 0
	at := map[topic.ID]int{} // indexes of topics in the answer
	var told leaders
	for _, p := range f.parts {
		if !p.told && p.err == nil && p.got.Size == 0 {
			continue
		}
		answered := kmsg.NewShareFetchResponseTopicPartition()
		answered.Partition = p.part.partition
		answered.ErrorCode, answered.ErrorMessage = code(p.err), message(p.err)
		answered.AcknowledgeErrorCode, answered.AcknowledgeErrorMessage = code(p.ackErr), message(p.ackErr)
		if leader, epoch, known := leaderOf(p.err, p.topic, p.part.partition); known {
			answered.CurrentLeader.LeaderID, answered.CurrentLeader.LeaderEpoch = leader, epoch
			told.add(leader)
		}
		for _, d := range p.got.Deliveries {
			acquired := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
			acquired.FirstOffset, acquired.LastOffset, acquired.DeliveryCount = d.First, d.Last, d.Count
			answered.AcquiredRecords = append(answered.AcquiredRecords, acquired)
		}
		n, known := at[p.part.id]
		if !known {
			n = len(response.Topics)
			at[p.part.id] = n
			response.Topics = append(response.Topics, kmsg.ShareFetchResponseTopic{TopicID: p.part.id})
			response.records = append(response.records, nil)
		}
		response.Topics[n].Partitions = append(response.Topics[n].Partitions, answered)
		response.records[n] = append(response.records[n], pieces{data: p.got.Data, size: p.got.Size})
		f.finish(p)
	}
	for _, n := range f.endpoints(told) {
		endpoint := kmsg.NewShareFetchResponseNodeEndpoint()
		endpoint.NodeID, endpoint.Host, endpoint.Port, endpoint.Rack = n.ID, n.Host, n.Port, rackOf(n)
		response.NodeEndpoints = append(response.NodeEndpoints, endpoint)
	}
}

// finish logs an unexpected error of a partition, and makes the next request look for the partition again.
func (f *sharing) finish(p *shared) {
	if p.err != nil && !errors.Is(p.err, context.Canceled) { // the session ends
		f.server.unexpected("share group ", f.session.group, p.err)
		p.part.drop()
	}
}

// endpoints returns the nodes that an answer names as leaders.
func (f *sharing) endpoints(told leaders) []topic.Node {
	if told == nil {
		return nil
	}
	return told.nodes(f.server.nodes(f.call))
}
