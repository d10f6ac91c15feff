package kafka

import "github.com/sluice-project/sluice/topic/view"

// A fetch of a view jumps over hidden records that are followed by visible ones. For the answer if
// there are none see docs/decisions/0021-views-over-hidden-offsets.md.

// markerSince is the version of Fetch from which on clients understand a marker
// in place of hidden records.
const markerSince = 11

// hides reports whether a view was read and has no visible records so far.
func (p *fetchPart) hides() bool {
	return p.err == nil && p.size == 0 && p.next > p.want.offset
}

// goesOn reports whether a view without visible records so far was not read to its end.
func (f *fetching) goesOn() bool {
	for i := range f.parts {
		if p := &f.parts[i]; p.hides() && p.next < p.end() {
			return f.found == 0
		}
	}
	return false
}

// mark adds markers for views without visible records: they tell the consumer where to continue.
func (f *fetching) mark() {
	for i := range f.parts {
		p := &f.parts[i]
		switch {
		case !p.hides():
		case f.request.Version < markerSince:
			if p.next >= p.end() { // the consumer is at the end of the visible records
				p.ends.LastStable = p.want.offset
			}
		default:
			marker, err := view.HiddenMarker(p.want.offset, p.next, p.ends.Epoch)
			if err != nil {
				p.err = err
				f.server.unexpected("mark hidden records of ", p.topic.Name(), err)
				continue
			}
			p.data, p.size = [][]byte{marker}, len(marker)
		}
	}
}
