// Package filestore keeps the document of package access in a file of the data directory.
//
// # Guarantees
//
//   - The file is replaced as a whole: after a crash it has the document before a write or the one after it, and an
//     acknowledged one is durable.
//   - Only the user of the server may read it.
//   - One process at a time uses the directory. The file may be replaced from outside, as by a restored backup.
package filestore
