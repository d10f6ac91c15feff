// Package backup copies the data directory of a running server, and restores the copy.
//
// # Nouns
//
//   - A snapshot is a folder with links to the server's files, as of one moment.
//   - A backup is a tar of a snapshot. A description begins it; the checksums of all files end it,
//     so that a backup without its end is never taken for a whole one.
//
// # Guarantees
//
//   - [Read] reports an error unless every byte is as [Write] has written it.
//   - [Restore] makes a folder with all files of a backup, or none.
//
// docs/formats/backup.md describes the format.
package backup
