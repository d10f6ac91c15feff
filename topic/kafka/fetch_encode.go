package kafka

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchResponse is an answer to Fetch. Its records are not in the embedded response but in separate
// pieces, which are sent without a copy: copying them would cost more than the rest of the answer.
type fetchResponse struct {
	*kmsg.FetchResponse
	// records are the records of each topic's partitions, in the order of the response.
	records [][]pieces
}

// pieces are whole batches, one after another.
type pieces struct {
	data [][]byte
	size int
}

// frame returns the answer on the wire, in parts. Around the records it writes the same as kmsg; a
// test compares them.
func (r *fetchResponse) frame(to []byte, correlation int32) (net.Buffers, []byte) {
	w := fetchWriter{flat: to[:0], flexible: r.IsFlexible()}
	w.flat = append(w.flat, 0, 0, 0, 0)
	w.flat = kbin.AppendInt32(w.flat, correlation)
	w.tags()
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
	w.cut(pieces{})
	binary.BigEndian.PutUint32(w.flat, uint32(len(w.flat)-sizeBytes+w.size))
	return w.parts(), w.flat
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
	list := kbin.AppendCompactArrayLen(nil, len(brokers))
	for _, b := range brokers {
		list = kbin.AppendInt32(list, b.NodeID)
		list = kbin.AppendCompactString(list, b.Host)
		list = kbin.AppendInt32(list, b.Port)
		list = kbin.AppendCompactNullableString(list, b.Rack)
		list = append(list, 0)
	}
	w.flat = append(w.flat, 1, 0)
	w.flat = kbin.AppendUvarint(w.flat, uint32(len(list)))
	w.flat = append(w.flat, list...)
}

// parts returns all parts, in order.
func (w *fetchWriter) parts() net.Buffers {
	var all net.Buffers
	from := 0
	for _, cut := range w.cuts {
		all = append(all, w.flat[from:cut.at])
		all = append(all, cut.records.data...)
		from = cut.at
	}
	return all
}
