// Package history records the operations of a cluster's clients and finds violations in them.
//
// A Recorder records, during faults, every sent record and its answer, every record that a reader
// or a group member received, and every committed offset that was acknowledged or seen. At the end
// one more reader reads all records: the log. Check compares, without I/O and without a clock:
//   - lost: an acknowledged record is not in the log, or not at the offset that its producer was told
//   - doubled: a record is in the log twice
//   - reordered: records of one producer are not in the order in which they were sent
//   - foreign: a record that was never sent, or whose content was changed
//   - disagreed: a reader received another record at an offset than the log has, skipped a record, or
//     received one twice
//   - unprocessed: no member of the group received a record
//   - regressed: a committed offset went back
//
// Interruptions returns for each fault how long no record was acknowledged.
package history
