package history

import "time"

// History is what happened. All times are since its begin.
type History struct {
	// Partitions is how many the topic has, End when the last client ended.
	Partitions int
	End        time.Duration
	Sends      []Send
	// Log is what a reader without a part in it finds at the end, in its order.
	Log []Record
	// Reads are by reader, each in the order in which it was given them;
	// Processed is what members of the group were given.
	Reads     map[string][]Record
	Processed []Record
	Commits   []Commit
	Faults    []Fault
	// Complaints are violations that a client has found by itself.
	Complaints []Violation
}

// Send is one record as its producer knows it.
type Send struct {
	Producer  int
	Partition int32
	// Number counts the records of the producer in the partition, from 0.
	Number         int64
	Sent, Answered time.Duration
	// Offset is where the record is, as the answer says; Unknown if it was not
	// acknowledged: then it may be in the log or not.
	Offset int64
}

// Unknown is the offset of a record that was not acknowledged.
const Unknown = -1

// Record is one record as a consumer was given it.
type Record struct {
	Partition int32
	Offset    int64
	Producer  int
	Number    int64
	// Changed says that the content is not what the producer sends.
	Changed bool
}

// Commit is a committed offset that the group has for certain: one that was
// answered to a member, or one that was asked for.
type Commit struct {
	Partition       int32
	Offset          int64
	Asked, Answered time.Duration
	// Seen says that it was asked for.
	Seen bool
}

// Fault is one thing that was done to the cluster.
type Fault struct {
	// Kind is what was done, such as kill; Node to whom.
	Kind string
	Node int
	// At is when it began, Healed when it was taken back, Recovered when the
	// cluster was seen whole again.
	At, Healed, Recovered time.Duration
}

// Violation is something that must not happen.
type Violation struct {
	// Kind is one of those of the package's comment.
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}
