package group

// Counted returns how many bytes are counted for all groups, and how many their members have.
func Counted(gs *Groups) (counted, have int64) {
	for _, c := range gs.all() {
		c.mu.Lock()
		have += c.group.bytes()
		c.mu.Unlock()
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.bytes, have
}
