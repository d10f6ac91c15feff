package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/spans"
)

const (
	// maxFetchWait bounds the wait of a fetch for records.
	maxFetchWait = 5 * time.Minute
	// leastFetch is the least memory for an answer with records.
	leastFetch = 64 << 10
	// abortedCost is the memory of an aborted transaction in an answer.
	abortedCost = 64
	// lookAgain is the least pause of a fetch that has found too little before it reads again.
	lookAgain = 5 * time.Millisecond
	// endpointsSince is the version from which on an answer has the addresses of the leaders that
	// it names.
	endpointsSince = 16
)

// Fetch: versions 4 to 17.
//
// Returns whole batches from each partition's offset on, as they were produced. It waits for min
// bytes or an error, at most for max wait, and at most 5 minutes. Max bytes bounds the whole answer
// and partition max bytes each part; only the first batch of the answer may exceed them, so that
// every consumer makes progress. The server may return fewer bytes than requested, see
// Options.MaxFetchBytes and FetchMemory. With read_committed, and from a view, the answer ends at
// the last stable offset; the former has the aborted transactions in it, a view none of their
// records.
//
//   - 5: the first offset. 7: sessions (see fetch_session.go): an incremental answer has only
//     partitions with news, and reads first from those that had none the last time.
//   - 9: the expected leader epoch is checked. 11: racks, which have no effect. 12: the epoch of
//     the client's last record, which is not compared: no acknowledged record is ever taken back.
//   - 12: with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH, the leader of the partition, and from
//     16 on its address.
//   - 13: topic ids. 14 to 17: for followers.
//   - 18: would be for followers too.
func (s *Server) fetch(c *call, r *kmsg.FetchRequest) answer {
	began := time.Now()
	return func(ctx context.Context) kmsg.Response {
		response := &fetchResponse{FetchResponse: r.ResponseKind().(*kmsg.FetchResponse)}
		want, err := s.sessions.open(r, began)
		if err != nil {
			response.ErrorCode = code(err)
			return response
		}
		defer want.done()
		if err := c.memory.await(int64(len(want.partitions)) * answerCost); err != nil {
			response.ErrorCode = code(err)
			return response
		}
		wait := min(time.Duration(max(r.MaxWaitMillis, 0))*time.Millisecond, maxFetchWait)
		meter := c.meter(auth.ConsumerRate)
		f := newFetching(s, c, r, want, began.Add(wait))
		defer f.stop()
		f.runWithin(ctx, mayAnswer(meter))
		response.ThrottleMillis = c.spend(meter, f.found)
		f.mark()
		f.fill(response)
		if s.spans != nil && f.found > 0 {
			f.trace(began)
		}
		return response
	}
}

// trace makes the span of a request whose answer has records.
func (f *fetching) trace(began time.Time) {
	batch := spans.Batch{Client: f.call.client}
	for i := range f.parts {
		if p := &f.parts[i]; p.size > 0 {
			batch.Add(p.topic.Name(), p.size, nil)
		}
	}
	f.server.spans.Polled(began, &batch, f.link)
}

// link adds the traces of the records in the answer.
func (f *fetching) link(links *spans.Links) {
	for i := range f.parts {
		p := &f.parts[i]
		links.Read(p.data, func(offset int64) bool { return offset >= p.want.offset })
	}
}

// fetching is a fetch in flight.
type fetching struct {
	server   *Server
	call     *call
	request  *kmsg.FetchRequest
	want     fetchWant
	deadline time.Time
	parts    []fetchPart
	// limit bounds the bytes of the answer.
	limit int64
	// found is the size of the records read; held is the reserved memory.
	found, held int64
	// failed means that the answer has an error.
	failed bool

	watched bool
	cancels []func()
	moved   chan struct{}
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	want      *fetchPartition
	topic     *broker.Topic
	partition *broker.Partition
	ends      broker.Ends
	data      [][]byte
	size      int
	run       *broker.Run // has data
	// committed reports whether it ends at the last stable offset.
	committed bool
	aborted   []broker.Aborted
	// next is the offset up to which a view was scanned.
	next int64
	err  error
}

func newFetching(s *Server, c *call, r *kmsg.FetchRequest, want fetchWant, deadline time.Time) *fetching {
	f := &fetching{
		server: s, call: c, request: r, want: want, deadline: deadline,
		limit: min(int64(max(r.MaxBytes, 0)), int64(s.options.MaxFetchBytes)), moved: make(chan struct{}, 1),
	}
	f.parts = make([]fetchPart, len(want.partitions))
	for i, p := range want.partitions {
		part := &f.parts[i]
		part.want = p
		if part.topic, part.err = fetchFrom(c, r, p); part.err == nil {
			part.committed = r.IsolationLevel == readCommitted || part.topic.Source() != nil
			part.partition, part.err = led(part.topic, p.partition, p.epoch)
		}
	}
	return f
}

// fetchFrom returns the topic of a wanted partition.
func fetchFrom(c *call, r *kmsg.FetchRequest, p *fetchPartition) (*broker.Topic, error) {
	if r.Version >= 13 {
		return c.topicByID(p.id)
	}
	return c.topic(p.name)
}

// runWithin reads no more than a quota allows; if that is nothing, the answer has errors only.
func (f *fetching) runWithin(ctx context.Context, most int64) {
	if most <= 0 {
		f.look(ctx)
		return
	}
	if f.limit = min(f.limit, most); most < int64(f.request.MinBytes) {
		f.request.MinBytes = 1 // there will not be enough, however long it waits
	}
	f.run(ctx)
}

// run reads until there is enough, or the time is over.
func (f *fetching) run(ctx context.Context) {
	timer := time.NewTimer(time.Until(f.deadline))
	defer timer.Stop()
	for {
		if f.look(ctx) {
			f.read(ctx)
		}
		if f.failed || f.found > 0 && f.found >= int64(f.request.MinBytes) || f.request.MinBytes <= 0 || len(f.parts) == 0 {
			return
		}
		if !time.Now().Before(f.deadline) || ctx.Err() != nil {
			return
		}
		if f.goesOn() {
			if f.request.Version >= markerSince {
				return
			}
			continue
		}
		found := f.found > 0
		if !f.wait(ctx, timer.C, found) {
			return
		}
	}
}

// inRange returns an error if the partition does not have the offset: ErrOffsetOutOfRange if that is certain.
func (p *fetchPart) inRange(ctx context.Context, known *certainty) error {
	if p.want.offset > p.ends.HighWatermark {
		if err := known.of(ctx, p.partition); err != nil {
			return err
		}
		p.ends = p.partition.Ends() // they may be from before this broker had read the log
	}
	if p.want.offset < p.ends.Start || p.want.offset > p.ends.HighWatermark {
		return topic.ErrOffsetOutOfRange
	}
	return nil
}

// look finds the ends of the partitions, and reports whether there is anything to read.
func (f *fetching) look(ctx context.Context) (something bool) {
	var known certainty
	for i := range f.parts {
		p := &f.parts[i]
		if p.err == nil {
			p.ends = p.partition.Ends()
			if _, err := led(p.topic, p.want.partition, p.want.epoch); err != nil { // no longer led here
				p.err = err
			} else {
				p.err = p.inRange(ctx, &known)
			}
		}
		if p.err != nil {
			f.failed = true
			continue
		}
		something = something || p.want.offset < p.end()
	}
	return something
}

// end returns the offset up to which a partition is read.
func (p *fetchPart) end() int64 {
	if p.committed {
		return p.ends.LastStable
	}
	return p.ends.HighWatermark
}

// read reads as many records as fit into the answer.
func (f *fetching) read(ctx context.Context) {
	f.drop()
	waiting, cancel := context.WithDeadline(ctx, f.deadline.Add(lookAgain))
	held, err := f.server.answers.Take(waiting, min(leastFetch, f.limit), f.limit)
	cancel()
	if err != nil {
		return // without memory in time the answer has no records
	}
	f.held = held
	for i := range f.parts {
		p := &f.parts[i]
		if p.err != nil || p.want.offset >= p.end() {
			continue
		}
		left := min(held, f.limit) - f.found
		if left <= 0 && f.found > 0 {
			break
		}
		f.readPart(ctx, p, min(left, int64(max(p.want.maxBytes, 0))))
	}
	// Unused memory goes back. One batch may have exceeded the limit.
	f.server.answers.Change(f.held - f.found)
	f.held = f.found
}

// readPart reads one partition.
func (f *fetching) readPart(ctx context.Context, p *fetchPart, most int64) {
	read := p.topic.Read
	if p.committed {
		read = p.topic.ReadCommitted
	}
	fetched, err := read(ctx, p.want.partition, p.want.offset, int(max(most, 1)))
	if err != nil {
		f.server.unexpected("read ", p.topic.Name(), err)
		p.err, f.failed = err, true
		return
	}
	p.ends = fetched.Ends
	if f.found > 0 && int64(fetched.Size) > most {
		return // only the first batch of an answer may exceed the limits
	}
	p.data, p.size, p.next, p.aborted, p.run = fetched.Data, fetched.Size, fetched.Next, fetched.Aborted, fetched.Run
	f.found += int64(fetched.Size)
}

// drop discards the records read.
func (f *fetching) drop() {
	for i := range f.parts {
		p := &f.parts[i]
		p.data, p.size, p.next, p.aborted, p.run = nil, 0, 0, nil, nil
	}
	f.server.answers.Change(f.held)
	f.found, f.held = 0, 0
}

// wait waits until a partition has grown since the last look. It returns false when the
// answer is due.
func (f *fetching) wait(ctx context.Context, over <-chan time.Time, found bool) bool {
	if !f.watched {
		f.watch()
	} else if found {
		pause := time.NewTimer(lookAgain)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return false
		}
	}
	look := time.NewTicker(stallTime)
	defer look.Stop()
	for {
		select {
		case <-f.moved:
			return true
		case <-over:
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

// watch subscribes to the growth of partitions, and checks whether one has grown since.
func (f *fetching) watch() {
	f.watched = true
	signal := func() {
		select {
		case f.moved <- struct{}{}:
		default:
		}
	}
	for i := range f.parts {
		p := &f.parts[i]
		f.cancels = append(f.cancels, p.partition.Watch(signal))
		if p.partition.Ends() != p.ends {
			signal()
		}
	}
}

// stop ends the fetch's subscriptions.
func (f *fetching) stop() {
	for _, cancel := range f.cancels {
		cancel()
	}
	f.server.answers.Change(f.held)
}

// fill fills the answer.
func (f *fetching) fill(response *fetchResponse) {
	// The fields around the records take memory without waiting, since the records have theirs.
	around := int64(len(f.parts)) * answerCost
	for i := range f.parts {
		around += int64(len(f.parts[i].aborted)) * abortedCost
	}
	f.server.answers.Change(-around)
	f.call.memory.held, f.held = f.held+around, 0
	got := map[*fetchPartition]bool{}
	at := map[fetchKey]int{} // indexes of topics in the answer
	var told leaders
	for i := range f.parts {
		p := &f.parts[i]
		answered := p.answer(response.Version)
		if answered.CurrentLeader.LeaderID >= 0 {
			told.add(answered.CurrentLeader.LeaderID)
		}
		if p.size > 0 {
			got[p.want] = true
		}
		news := p.want.news(&answered) || p.size > 0
		if f.want.incremental && !news {
			continue
		}
		key := fetchKey{id: p.want.id, name: p.want.name}
		n, known := at[key]
		if !known {
			n = len(response.Topics)
			at[key] = n
			same := f.sameTopic(i)
			response.Topics = append(response.Topics, kmsg.FetchResponseTopic{
				Topic: key.name, TopicID: key.id, Partitions: make([]kmsg.FetchResponseTopicPartition, 0, same),
			})
			response.records = append(response.records, make([]pieces, 0, same))
		}
		response.Topics[n].Partitions = append(response.Topics[n].Partitions, answered)
		response.records[n] = append(response.records[n], pieces{p.data, p.size, p.run})
	}
	response.SessionID = f.want.answered(got)
	if response.Version >= endpointsSince && told != nil {
		for _, n := range told.nodes(f.server.nodes(f.call)) {
			broker := kmsg.NewFetchResponseBroker()
			broker.NodeID, broker.Host, broker.Port, broker.Rack = n.ID, n.Host, n.Port, rackOf(n)
			response.Brokers = append(response.Brokers, broker)
		}
	}
}

// sameTopic returns how many parts from one on have its topic: mostly all of that topic.
func (f *fetching) sameTopic(from int) (n int) {
	first := f.parts[from].want
	for n = 1; from+n < len(f.parts); n++ {
		if next := f.parts[from+n].want; next.id != first.id || next.name != first.name {
			break
		}
	}
	return n
}

// answer returns the answer for one partition.
func (p *fetchPart) answer(version int16) kmsg.FetchResponseTopicPartition {
	answered := kmsg.NewFetchResponseTopicPartition()
	answered.Partition, answered.ErrorCode = p.want.partition, code(p.err)
	answered.HighWatermark, answered.LastStableOffset, answered.LogStartOffset = -1, -1, -1
	if leader, epoch, known := leaderOf(p.err, p.topic, p.want.partition); known && version >= 12 {
		answered.CurrentLeader.LeaderID, answered.CurrentLeader.LeaderEpoch = leader, epoch
	}
	if p.partition != nil {
		answered.HighWatermark, answered.LastStableOffset = p.ends.HighWatermark, p.ends.LastStable
		answered.LogStartOffset = p.ends.Start
		if p.topic.Source() != nil {
			answered.HighWatermark = p.ends.LastStable
		}
	}
	for _, a := range p.aborted {
		answered.AbortedTransactions = append(answered.AbortedTransactions,
			kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.Producer, FirstOffset: a.First})
	}
	return answered
}
