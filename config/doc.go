// Package config reads the settings of the sluice binary and checks them.
//
// # Nouns
//
//   - A [Setting] is one thing that can be set: its key, what it means, its
//     unit and its default. The table of all settings is the one place that
//     says so; flags, help, reference and checks are made from it.
//   - The [Config] is what came out, one typed field for each setting.
//   - A source is where a value came from.
//
// # How data flows
//
//	defaults ← file ← environment ← flags ─▶ checks ─▶ Config
//
// Each step overrides the one before. The file is YAML, named by --config or
// SLUICE_CONFIG. The setting bulk.workers is the flag --bulk-workers and the
// variable SLUICE_BULK_WORKERS; an empty variable is as if it were not set.
// Secrets have no flag.
//
// # Guarantees
//
//   - Every value is checked before anything starts. An [Error] says which
//     setting is wrong, where it was set, and what would be right.
//   - Nothing is ignored: a key of the file that is no setting is an error, and
//     so is a variable that is nearly the name of one.
//   - What [Config.WriteYAML] prints is a file that gives the same Config, but for
//     secrets: neither it nor an error shows one.
package config
