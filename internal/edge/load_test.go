package edge

import (
	"testing"

	"github.com/sluice-project/sluice/access"
)

// The operations that begin whatever the load is are those of the API: a name that is none would let nothing pass.
func TestUnloadedOperations(t *testing.T) {
	for id := range unloaded {
		access.Operation(id) // panics if there is none
	}
	for _, id := range []string{"create-action", "enqueue-job", "enter", "list-actions", "show-room"} {
		if unloaded[id] {
			t.Errorf("%s brings new work, or reads, and waits for no turn", id)
		}
	}
}
