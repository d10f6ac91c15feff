//go:build cluster

package cluster

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/earlier"
)

// earlierRevision is what TestPlannedStop upgrades from: the tag of the last release, and before
// the first one a revision with the same requirements in go.mod.
const earlierRevision = "6eb6f8ea79fe4caba053636453bef3f1082fbf84"

// earlierBinary returns the binary of the revision that -from names, built from the repository's
// history as a release is. In a clone without that revision it is this version's, which
// "make test-all" reports.
func earlierBinary(t *testing.T) string {
	t.Helper()
	if *from == earlierRevision && !earlier.Known(t, "../..", *from) {
		t.Log("nothing is upgraded: this clone does not have the history")
		return binary
	}
	return earlier.Build(t, "../..", *from)
}
