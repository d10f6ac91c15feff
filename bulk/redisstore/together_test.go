//go:build redis

package redisstore

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// TestTogether checks that joined grants have the same sum for each action in each block, and
// that a short list is unchanged.
func TestTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.Uint64Range(1, 9)
		grants := make([]bulk.Grant, rapid.IntRange(0, 3*turns).Draw(t, "grants"))
		for i := range grants {
			grants[i] = bulk.Grant{Number: numbers.Draw(t, "number"), Jobs: rapid.Int64Range(1, 3).Draw(t, "jobs")}
		}
		joined := together(grants)
		if len(grants) <= turns {
			if len(joined) != len(grants) {
				t.Fatalf("%d grants became %d", len(grants), len(joined))
			}
			return
		}
		want, got := map[uint64]int64{}, map[uint64]int64{}
		for _, g := range grants {
			want[g.Number] += g.Jobs
		}
		for _, g := range joined {
			got[g.Number] += g.Jobs
		}
		for n, jobs := range want {
			if got[n] != jobs {
				t.Errorf("action %d is granted %d jobs, want %d", n, got[n], jobs)
			}
		}
		if most := 9 * (len(grants)/turns + 1); len(joined) > most {
			t.Errorf("%d grants of 9 actions became %d, want at most %d", len(grants), len(joined), most)
		}
	})
}
