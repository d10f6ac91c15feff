package migrate

import (
	"io"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Rescue sets rescueMax for the migrator.
func (m *Migrator) Rescue(d time.Duration) *Migrator {
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
