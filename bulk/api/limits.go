package api

import "time"

// The bounds of the edge.
const (
	// MaxChunk is the most bytes of one chunk of jobs, after decompression.
	MaxChunk = 32 << 20
	// MaxUploads is how many chunks are read and parsed at one time; each takes
	// its size and a batch of memory, and up to twice its size if it is compressed
	// or of unannounced length.
	MaxUploads = 8
	// uploadWait is how long a chunk waits for its turn before it is refused.
	uploadWait = 10 * time.Second

	// batchJobs and batchBytes bound what is handed to the engine at one time; a
	// chunk beyond them is appended in several batches.
	batchJobs  = 10_000
	batchBytes = 4 << 20

	// maxBody is the most bytes of a JSON body.
	maxBody = 1 << 20
	// maxAcknowledgement is that of an acknowledgement, which has results.
	maxAcknowledgement = 8 << 20
	// maxScheduleBody is that of a schedule: its jobs, and as much for white space
	// and all else.
	maxScheduleBody = 2 << 20
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = time.Minute
	// maxDrain and drainTimeout bound what is read of a body that was refused,
	// so that the client gets to read why.
	maxDrain     = 2 * MaxChunk
	drainTimeout = 10 * time.Second

	// maxWatches is how many watches are served at one time.
	maxWatches = 1000
	// watchInterval is how often a watched action is looked at.
	watchInterval = 200 * time.Millisecond
	// heartbeat is how often a watch shows that it is alive.
	heartbeat = 15 * time.Second
	// writeTimeout is how long a client may take to read a part of a stream.
	writeTimeout = 30 * time.Second

	// csvPage is how many failures are read at one time for a CSV answer.
	csvPage = 500
	// maxScan is how many actions one page of dead letters looks at.
	maxScan = 1000

	// maxSettle is how long leases are handed back for after their request ended.
	maxSettle = 5 * time.Second
)
