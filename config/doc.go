// Package config reads the settings of the sluice binary and checks them.
//
// # Nouns
//
//   - A [Setting] is one thing that can be set: its key, its typed field, its
//     meaning, default and range, and the commands that have a flag for it. The
//     schema (settings.go) has one row for each; the file, the environment, flags,
//     help, the reference and validation follow from it.
//   - The [Config] is the result, one typed field for each setting.
//   - A source is where a value came from.
//
// # How data flows
//
//	defaults ← file ← environment ← flags ─▶ checks ─▶ Config
//
// Later sources override earlier ones. The file is YAML, named by --config or
// SLUICE_CONFIG. The setting bulk.workers is the flag --bulk-workers and the
// variable SLUICE_BULK_WORKERS; an empty variable counts as not set.
// Secrets have no flag.
//
// # Guarantees
//
//   - Every value is checked before anything starts. An [Error] says which
//     setting is wrong, where it was set, and what would be right.
//   - Nothing is ignored: a key of the file that is no setting is an error, and
//     so is a variable that is nearly the name of one.
//   - [Config.WriteYAML] writes a file that gives the same Config, except for
//     secrets. Neither the file nor an error shows a secret.
package config
