package move

import (
	"io"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Rescue sets how long a mover that is to end goes on with what must not be left.
func (m *Mover) Rescue(d time.Duration) *Mover {
	m.rescue = d
	return m
}

var (
	ReadEntries = readEntries
	ReadItems   = readItems
)

// WriteEntries writes entries as frames.
func WriteEntries(to io.Writer, entries []topic.Entry) error {
	return frames{entries: entries}.write(to)
}
