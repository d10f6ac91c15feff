package natsstore

// CleanAtOnce makes a store clean the log of its metadata after nearly each
// change, a key at a time.
func CleanAtOnce(s *Store) {
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	s.meta.cleanAt = cleanLimits{slack: 256, entries: cleanEntries, bytes: 64}
}

// WaitForLeaders makes followers wait four times as long before they count a silent leader as lost,
// and leaders for a majority, than in production: on a busy machine all nodes of a test may stand
// still. Nodes whose connections are cut are lost at once nevertheless.
func WaitForLeaders() {
	for i, t := range electionTimers {
		if t.timer != &hbInterval && t.timer != &lostQuorumCheck {
			electionTimers[i].our *= 4
		}
	}
}

// VolumeOf returns the size of a disk, and how much of it is free.
var VolumeOf = volume
