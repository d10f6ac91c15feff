// Package convert copies the topics of a stopped server from one kind of store into another:
// all logs with their sequences and marks, and the metadata with its revisions. The source
// is only read. A conversion that was interrupted starts again with an empty target.
package convert
