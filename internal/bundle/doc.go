// Package bundle gathers what explains a server's behavior, for someone who cannot reach it.
//
// # Nouns
//
//   - A bundle is a tar, compressed with gzip, of small files: facts of the process, as the server
//     has them, and what the command sluice debug bundle adds from the API.
//   - A [Tail] keeps the last lines of the log, which a bundle has.
//
// # Guarantees
//
//   - A file that cannot be had is missing from the bundle; its reason is in errors.txt, and all other files are there.
//   - There is no secret in a bundle: settings hide theirs, logs and metrics have none, and no
//     payload, record or ticket is asked for. Names of tenants, rooms, topics and accounts are in it.
package bundle
