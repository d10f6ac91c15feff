package kafka

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/broker"
)

// framed is an answer whose records are not in the response but in separate pieces, which are sent without a copy: copying
// them would cost more than the rest of the answer.
type framed interface {
	kmsg.Response
	// frame returns the answer on the wire, in parts, which share memory with to. Around the records it writes the same as
	// kmsg; a test compares them.
	frame(to []byte, correlation int32) (net.Buffers, []byte)
	// plain returns the response without the records.
	plain() kmsg.Response
}

// fetchResponse is an answer to Fetch.
type fetchResponse struct {
	*kmsg.FetchResponse
	// records are the records of each topic's partitions, in the order of the response.
	records [][]pieces
}

// shareFetchResponse is an answer to ShareFetch.
type shareFetchResponse struct {
	*kmsg.ShareFetchResponse
	records [][]pieces // as those of a fetchResponse
}

// pieces are whole batches, one after another.
type pieces struct {
	data [][]byte
	size int
	// run has the data of a Fetch, if it was read from the log.
	run *broker.Run
}

func (r *fetchResponse) plain() kmsg.Response { return r.FetchResponse }

// release gives back the memory of the records, once they are sent.
func (r *fetchResponse) release() {
	for _, parts := range r.records {
		for _, part := range parts {
			part.run.Release()
		}
	}
}

func (r *fetchResponse) frame(to []byte, correlation int32) (net.Buffers, []byte) {
	w := newFetchWriter(to, correlation, r.IsFlexible())
	w.flat = kbin.AppendInt32(w.flat, r.ThrottleMillis)
	if r.Version >= 7 {
		w.flat = kbin.AppendInt16(w.flat, r.ErrorCode)
		w.flat = kbin.AppendInt32(w.flat, r.SessionID)
	}
	w.count(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		switch {
		case r.Version >= 13:
			w.flat = kbin.AppendUuid(w.flat, t.TopicID)
		case w.flexible:
			w.flat = kbin.AppendCompactString(w.flat, t.Topic)
		default:
			w.flat = kbin.AppendString(w.flat, t.Topic)
		}
		w.count(len(t.Partitions))
		for j := range t.Partitions {
			w.partition(r.Version, &t.Partitions[j], r.records[i][j])
		}
		w.tags()
	}
	w.brokers(r.Brokers)
	return w.end()
}

func (r *shareFetchResponse) plain() kmsg.Response { return r.ShareFetchResponse }

func (r *shareFetchResponse) frame(to []byte, correlation int32) (net.Buffers, []byte) {
	w := newFetchWriter(to, correlation, true)
	w.flat = kbin.AppendInt32(w.flat, r.ThrottleMillis)
	w.flat = kbin.AppendInt16(w.flat, r.ErrorCode)
	w.flat = kbin.AppendCompactNullableString(w.flat, r.ErrorMessage)
	w.flat = kbin.AppendInt32(w.flat, r.AcquisitionLockTimeoutMillis)
	w.count(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		w.flat = kbin.AppendUuid(w.flat, t.TopicID)
		w.count(len(t.Partitions))
		for j := range t.Partitions {
			w.sharePartition(&t.Partitions[j], r.records[i][j])
		}
		w.tags()
	}
	w.count(len(r.NodeEndpoints))
	for _, n := range r.NodeEndpoints {
		w.node(n.NodeID, n.Host, n.Port, n.Rack)
	}
	w.tags()
	return w.end()
}

// fetchWriter writes the fields around the records into one piece, and notes where the records go.
type fetchWriter struct {
	flat     []byte
	flexible bool
	cuts     []fetchCut
	size     int // of all records
}

// fetchCut is a position in the piece, with the records that follow it.
type fetchCut struct {
	at      int
	records pieces
}

func newFetchWriter(to []byte, correlation int32, flexible bool) *fetchWriter {
	w := &fetchWriter{flat: append(to[:0], 0, 0, 0, 0), flexible: flexible}
	w.flat = kbin.AppendInt32(w.flat, correlation)
	w.tags()
	return w
}

func (w *fetchWriter) tags() {
	if w.flexible {
		w.flat = append(w.flat, 0)
	}
}

func (w *fetchWriter) count(n int) {
	if w.flexible {
		w.flat = kbin.AppendCompactArrayLen(w.flat, n)
		return
	}
	w.flat = kbin.AppendArrayLen(w.flat, n)
}

func (w *fetchWriter) cut(records pieces) {
	w.cuts = append(w.cuts, fetchCut{len(w.flat), records})
	w.size += records.size
}

func (w *fetchWriter) partition(version int16, p *kmsg.FetchResponseTopicPartition, records pieces) {
	w.flat = kbin.AppendInt32(w.flat, p.Partition)
	w.flat = kbin.AppendInt16(w.flat, p.ErrorCode)
	w.flat = kbin.AppendInt64(w.flat, p.HighWatermark)
	w.flat = kbin.AppendInt64(w.flat, p.LastStableOffset)
	if version >= 5 {
		w.flat = kbin.AppendInt64(w.flat, p.LogStartOffset)
	}
	w.count(len(p.AbortedTransactions))
	for _, a := range p.AbortedTransactions {
		w.flat = kbin.AppendInt64(w.flat, a.ProducerID)
		w.flat = kbin.AppendInt64(w.flat, a.FirstOffset)
		w.tags()
	}
	if version >= 11 {
		w.flat = kbin.AppendInt32(w.flat, p.PreferredReadReplica)
	}
	// Records are never null: some clients consider that malformed.
	if w.flexible {
		w.flat = kbin.AppendUvarint(w.flat, uint32(records.size)+1)
	} else {
		w.flat = kbin.AppendInt32(w.flat, int32(records.size))
	}
	if records.size > 0 {
		w.cut(records)
	}
	if p.CurrentLeader.LeaderID < 0 {
		w.tags()
		return
	}
	// One tag: the current leader of the partition.
	w.flat = append(w.flat, 1, 1, 9)
	w.flat = kbin.AppendInt32(w.flat, p.CurrentLeader.LeaderID)
	w.flat = kbin.AppendInt32(w.flat, p.CurrentLeader.LeaderEpoch)
	w.tags()
}

// brokers ends the answer with its only tag: the addresses of the leaders that it names.
func (w *fetchWriter) brokers(brokers []kmsg.FetchResponseBroker) {
	if len(brokers) == 0 {
		w.tags()
		return
	}
	list := fetchWriter{flexible: true}
	list.count(len(brokers))
	for _, b := range brokers {
		list.node(b.NodeID, b.Host, b.Port, b.Rack)
	}
	w.flat = append(w.flat, 1, 0)
	w.flat = kbin.AppendUvarint(w.flat, uint32(len(list.flat)))
	w.flat = append(w.flat, list.flat...)
}

// node is the address of a leader.
func (w *fetchWriter) node(id int32, host string, port int32, rack *string) {
	w.flat = kbin.AppendInt32(w.flat, id)
	w.flat = kbin.AppendCompactString(w.flat, host)
	w.flat = kbin.AppendInt32(w.flat, port)
	w.flat = kbin.AppendCompactNullableString(w.flat, rack)
	w.tags()
}

func (w *fetchWriter) sharePartition(p *kmsg.ShareFetchResponseTopicPartition, records pieces) {
	w.flat = kbin.AppendInt32(w.flat, p.Partition)
	w.flat = kbin.AppendInt16(w.flat, p.ErrorCode)
	w.flat = kbin.AppendCompactNullableString(w.flat, p.ErrorMessage)
	w.flat = kbin.AppendInt16(w.flat, p.AcknowledgeErrorCode)
	w.flat = kbin.AppendCompactNullableString(w.flat, p.AcknowledgeErrorMessage)
	w.flat = kbin.AppendInt32(w.flat, p.CurrentLeader.LeaderID)
	w.flat = kbin.AppendInt32(w.flat, p.CurrentLeader.LeaderEpoch)
	w.tags()
	if records.size > 0 {
		w.flat = kbin.AppendUvarint(w.flat, uint32(records.size)+1)
		w.cut(records)
	} else {
		w.flat = append(w.flat, 0) // null
	}
	w.count(len(p.AcquiredRecords))
	for _, a := range p.AcquiredRecords {
		w.flat = kbin.AppendInt64(w.flat, a.FirstOffset)
		w.flat = kbin.AppendInt64(w.flat, a.LastOffset)
		w.flat = kbin.AppendInt16(w.flat, a.DeliveryCount)
		w.tags()
	}
	w.tags()
}

// end returns all parts, in order, and the piece around the records.
func (w *fetchWriter) end() (net.Buffers, []byte) {
	w.cut(pieces{})
	binary.BigEndian.PutUint32(w.flat, uint32(len(w.flat)-sizeBytes+w.size))
	var all net.Buffers
	from := 0
	for _, cut := range w.cuts {
		all = append(all, w.flat[from:cut.at])
		all = append(all, cut.records.data...)
		from = cut.at
	}
	return all, w.flat
}
