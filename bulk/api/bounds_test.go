package api_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/aggregate"
)

// The bounds that the document states are those that bulk has.
func TestBoundsOfTheDocument(t *testing.T) {
	schemas := document(t).Components.Schemas.Map()
	takes := func(n int) bool {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("sum:f%d", i)
		}
		_, err := aggregate.Parse(names, nil)
		return err == nil
	}
	names := 0
	for takes(names + 1) {
		names++
	}
	most := schemas["NewAction"].Properties["aggregate"].MaxItems
	if most == nil || *most != names {
		t.Errorf("aggregate: at most %v, and bulk takes %d", most, names)
	}
	longest := bulk.BoundRetryAfter(math.MaxInt64).Milliseconds()
	if most := schemas["Outcome"].Properties["retry_after_ms"].Maximum; most == nil || *most != float64(longest) {
		t.Errorf("retry_after_ms: at most %v, and bulk takes %d", most, longest)
	}
}
