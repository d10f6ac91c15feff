// Package history says what clients of a cluster did and were told, and what of it
// must not have happened.
//
// A Recorder takes down, while faults come and go, every record that was sent and
// how it was answered, every record that a reader or a member of a group was given,
// and every committed offset that was answered or seen. At the end one more reader
// reads all there is: the log. Check compares, without I/O and without a clock:
//
//   - lost: an acknowledged record is not in the log, or not at the offset that its
//     producer was told
//   - doubled: a record is in the log twice
//   - reordered: records of one producer are not in the order in which they were sent
//   - foreign: a record that nobody has sent, or one whose content was changed
//   - disagreed: a reader was given something else at an offset than the log has,
//     passed over a record, or was given one twice
//   - unprocessed: no member of the group was given a record
//   - regressed: a committed offset went back
//
// Interruptions says for each fault how long nothing was acknowledged around it.
package history
