package kafka

import "github.com/sluice-project/sluice/topic"

// A fetch of a view jumps over hidden records that are followed by visible ones.
// What it answers when there are none is in
// docs/decisions/0021-views-over-hidden-offsets.md.

// markerSince is the version of Fetch from which on clients understand a marker
// in place of hidden records.
const markerSince = 11

// hides tells whether a view was looked at, and showed nothing.
func (p *fetchPart) hides() bool {
	return p.err == nil && p.size == 0 && p.next > p.want.offset
}

// goesOn tells whether a view that has shown nothing yet was not looked at as
// far as it goes.
func (f *fetching) goesOn() bool {
	for i := range f.parts {
		if p := &f.parts[i]; p.hides() && p.next < p.ends.HighWatermark {
			return f.found == 0
		}
	}
	return false
}

// mark answers for views that have shown nothing: where the consumer goes on.
func (f *fetching) mark() {
	for i := range f.parts {
		p := &f.parts[i]
		switch {
		case !p.hides():
		case f.request.Version < markerSince:
			if p.next >= p.ends.HighWatermark { // the consumer is at the end, as far as it can see
				p.ends.HighWatermark = p.want.offset
			}
		default:
			marker, err := topic.HiddenMarker(p.want.offset, p.next, p.ends.Epoch)
			if err != nil {
				p.err = err
				f.server.unexpected("mark hidden records of "+p.topic.Name(), err)
				continue
			}
			p.data, p.size = [][]byte{marker}, len(marker)
		}
	}
}
