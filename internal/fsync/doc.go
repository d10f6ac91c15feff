// Package fsync measures how long the disk takes to make things durable, and reports when it is slow.
//
// A [Watch] wraps the file systems of all stores of a process. An fsync that has taken [Slow] is logged,
// counted and reported by [Watch.Check] while it goes on, since one that hangs never ends. An fsync is
// never cut off: what it was for is acknowledged when it has ended.
//
// A [Probe] is for a store that fsyncs by itself, where no file system can be wrapped: JetStream in a node of a cluster.
//
// Watching costs about half a microsecond for each fsync, and no goroutine, but for a probe.
package fsync
