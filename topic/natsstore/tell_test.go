package natsstore

import (
	"slices"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Nodes hear what those that are alive have told last. A node that is cut off knows it, and the others
// forget what it told; a single server has nobody to tell.
func TestNodesTellEachOther(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, nil)
	tell := func(node int32, text string) ([]string, error) {
		others, err := ns.node(node).Trade(t.Context(), []byte(text))
		var heard []string
		for _, other := range others {
			heard = append(heard, string(other))
		}
		return slices.Sorted(slices.Values(heard)), err
	}
	says := map[int32]string{}
	hears := func(node int32, want ...string) { // all say it again each time, as it may be lost, and is soon forgotten
		t.Helper()
		until.True(t, "what others told is heard", func() bool {
			for other, text := range says {
				if _, err := tell(other, text); err != nil && other != 1 {
					t.Log(err) // a busy machine may lose nodes for a moment
				}
			}
			heard, err := tell(node, says[node])
			return err == nil && slices.Equal(heard, want)
		})
	}
	says[1], says[2] = "one", "two"
	hears(3, "one", "two")
	says[1], says[3] = "one again", "three"
	hears(2, "one again", "three")
	says[2] = ""
	hears(3, "one again")
	ns.cut(1, true)
	hears(2, "three")
	until.True(t, "a node that is cut off knows it", func() bool {
		_, err := tell(1, says[1])
		return err != nil
	})
	ns.cut(1, false)
	hears(2, "one again", "three")
	if _, err := ns.node(1).Trade(t.Context(), make([]byte, maxTell+1)); err == nil {
		t.Error("a node tells more than it may")
	}
	alone, err := Open(t.TempDir(), Options{DiskReserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	if others, err := alone.Trade(t.Context(), []byte("one")); err != nil || others != nil {
		t.Errorf("a single server hears %q, %v", others, err)
	}
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
}
