package history

import "time"

// History is a record of all operations. All times are since its beginning.
type History struct {
	// Partitions is the topic's number of partitions; End is when the last client ended.
	Partitions int
	End        time.Duration
	Sends      []Send
	// Log is what an independent reader reads at the end, in order.
	Log []Record
	// Reads are by reader, each in the order of receipt; Processed are the records that members of
	// the group received.
	Reads     map[string][]Record
	Processed []Record
	Commits   []Commit
	Faults    []Fault
	// Complaints are violations that clients have found themselves.
	Complaints []Violation
}

// Send is one record as its producer knows it.
type Send struct {
	Producer  int
	Partition int32
	// Number counts the records of the producer in the partition, from 0.
	Number         int64
	Sent, Answered time.Duration
	// Offset is the offset in the answer; Unknown if the record was not acknowledged: then it may
	// be in the log or not.
	Offset int64
}

// Unknown is the offset of a record that was not acknowledged.
const Unknown = -1

// Record is one record as a consumer received it.
type Record struct {
	Partition int32
	Offset    int64
	Producer  int
	Number    int64
	// Changed means that the content is not what the producer sends.
	Changed bool
}

// Commit is an offset that the group has certainly committed: acknowledged to a member, or fetched.
type Commit struct {
	Partition       int32
	Offset          int64
	Asked, Answered time.Duration
	// Seen means that the offset was fetched.
	Seen bool
}

// Fault is one fault of the cluster.
type Fault struct {
	// Kind is the kind of fault, such as kill; Node is its node.
	Kind string
	Node int
	// At is when the fault began, Healed when it was healed, Recovered when the cluster was whole
	// again.
	At, Healed, Recovered time.Duration
}

// Violation is a broken promise.
type Violation struct {
	// Kind is one of the kinds in the package's comment.
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}
