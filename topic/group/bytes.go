package group

import "fmt"

// bytes returns what the members have brought, their assignments, and those being stored.
func (g *group) bytes() int64 {
	total := g.assigning + memberBytes*(len(g.members)+len(g.pending)) + g.consumers.bytes()
	for _, m := range g.members {
		total += m.size + len(m.assignment)
	}
	return int64(total)
}

// reserve counts more bytes for a group that is about to take them in, if all groups together may
// have them. Afterwards count gives back the bytes that it did not take in.
func (c *coordinator) reserve(more int) error {
	gs := c.groups
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if want := gs.bytes + int64(more); more > 0 && want > gs.config.BytesTotal {
		return fmt.Errorf("%w: members of all groups bring %d bytes; want at most %d", ErrGroupTooLarge, want, gs.config.BytesTotal)
	}
	c.counted += int64(more)
	gs.bytes += int64(more)
	return nil
}

// count counts what the group has now: nothing if it is gone, and more than all groups may have if it
// was another broker's.
func (c *coordinator) count() {
	var now int64
	if !c.gone {
		now = c.group.bytes()
	}
	c.groups.mu.Lock()
	defer c.groups.mu.Unlock()
	c.groups.bytes += now - c.counted
	c.counted = now
}
