package room

const (
	// MaxRooms is how many rooms there may be.
	MaxRooms = 10_000
	// MaxRoomBytes bounds the records of all rooms together, which each instance has in
	// memory.
	MaxRoomBytes = 64 << 20
)

// Phase is what a room does now.
type Phase string

// The phases.
const (
	// Open: a newcomer is let in immediately (teller), or at the next tick (park).
	Open Phase = "open"
	// Queueing: there is a line, or the room has not opened yet.
	Queueing Phase = "queueing"
	// Paused: visitors may come, and nobody is let in.
	Paused Phase = "paused"
	// Closed: before PrequeueFrom, or after EndsAt.
	Closed Phase = "closed"
	// AllSold: closed since there is nothing left.
	AllSold Phase = "sold_out"
)
