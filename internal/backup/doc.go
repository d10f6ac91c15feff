// Package backup copies the data directory of a running server, and restores the copy.
//
// # Nouns
//
//   - A snapshot is a folder with links to the server's files, as of one moment.
//   - A backup is a tar of a snapshot. A description begins it; the checksums of all files end it,
//     so that a backup without its end is never taken for a whole one.
//   - A base is the earlier backup that an incremental one continues. Of a file that begins as in the base
//     it has the rest only.
//
// # Guarantees
//
//   - [Read] reports an error unless every byte is as [Write] has written it.
//   - [Restore] makes a folder with all files of a backup, or none. It continues no other base than the
//     one that a backup names.
//
// docs/formats/backup.md describes the format.
package backup
