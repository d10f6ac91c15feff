package natsstore

// CleanAtOnce makes a store clean the log of its metadata after nearly each
// change, a key at a time.
func CleanAtOnce(s *Store) {
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	s.meta.cleanAt = cleanLimits{slack: 256, entries: cleanEntries, bytes: 64}
}

// VolumeOf returns the size of a disk, and how much of it is free.
var VolumeOf = volume
