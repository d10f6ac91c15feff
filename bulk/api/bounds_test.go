package api_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
)

// The bounds that the document states are those that bulk has.
func TestBoundsOfTheDocument(t *testing.T) {
	schemas := document(t, api.New(newFakeEngine())).Components.Schemas
	var names []string
	for {
		next := append(names, fmt.Sprintf("sum:f%d", len(names)))
		if _, err := bulk.ParseAggregates(next, nil); err != nil {
			break
		}
		names = next
	}
	most := schemas["NewAction"].Value.Properties["aggregate"].Value.MaxItems
	if most == nil || *most != uint64(len(names)) {
		t.Errorf("aggregate: at most %v, and bulk takes %d", most, len(names))
	}
	longest := bulk.BoundRetryAfter(math.MaxInt64).Milliseconds()
	if most := schemas["Outcome"].Value.Properties["retry_after_ms"].Value.Max; most == nil || *most != float64(longest) {
		t.Errorf("retry_after_ms: at most %v, and bulk takes %d", most, longest)
	}
}
