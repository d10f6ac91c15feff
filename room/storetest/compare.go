package storetest

import "github.com/sluice-project/sluice/room"

// samePlace checks that two places are the same, but for when they were looked at.
func (k *kit) samePlace(got, want room.Place) {
	k.t.Helper()
	same := got.Until.Equal(want.Until) && got.Since.Equal(want.Since)
	shown, wanted := got, want
	for _, p := range []*room.Place{&got, &want} {
		p.Until, p.Since, p.Now = k.terms.From, k.terms.From, k.terms.From
	}
	k.check(same && got == want, "place is %+v\nwant     %+v", shown, wanted)
}

// sameEvents checks that events are the same, and in the same order.
func (k *kit) sameEvents(got, want []room.Event) {
	k.t.Helper()
	for i := range min(len(got), len(want)) {
		a, b := got[i], want[i]
		same := a.Time.Equal(b.Time)
		a.Time, b.Time = k.terms.From, k.terms.From
		k.check(same && a == b, "event %d is %+v\nwant        %+v", i, got[i], want[i])
	}
	k.check(len(got) == len(want), "%d events, want %d; beyond: %+v", len(got), len(want), beyond(got, want))
}

// beyond returns what the longer one has more.
func beyond(a, b []room.Event) []room.Event {
	if len(a) < len(b) {
		a, b = b, a
	}
	return a[len(b):]
}
