// Package earlier builds earlier versions of sluice from the history of the repository, for tests
// of upgrades.
package earlier
