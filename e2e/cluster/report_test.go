//go:build cluster

package cluster

import (
	"os"
	"testing"

	"github.com/sluice-project/sluice/e2e/cluster/history"
)

// writeReport writes a report to the file that -report names.
func writeReport(t *testing.T, r *history.Report) {
	t.Helper()
	if *reportTo == "" {
		return
	}
	file, err := os.Create(*reportTo)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(file); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
