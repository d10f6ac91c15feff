package engine

import (
	"github.com/sluice-project/sluice/room"
)

// tellerTerms lets in one visitor when one leaves: at most Capacity are inside.
func tellerTerms(t *room.Terms, r *Room) {
	s := &r.Settings
	t.Capacity = r.Limit()
	t.TTL = s.PassTTL
	t.Sliding = s.Pass != room.Fixed
	if !t.Sliding {
		t.Renewals = s.Renewals
	}
}
