package config

// Error says which setting is wrong.
type Error struct {
	// Key is the setting's key, or what stands where one was expected.
	Key string
	// Source is where it was set, as Config.Source says it.
	Source string
	// Why says what is wrong, and what would be right.
	Why string
}

func (e *Error) Error() string { return e.Source + ": " + e.Key + ": " + e.Why }
