package history

import (
	"slices"
	"time"
)

// Interruption is how long clients had to wait around one fault.
type Interruption struct {
	Fault
	// Partition is the longest time in which one partition acknowledged nothing; Service is the
	// longest time in which none did.
	Partition, Service time.Duration
}

// Interruptions returns the interruption of each fault. A time without an acknowledgement counts
// for the fault in whose span it ends or continues; the span of a fault ends where the next begins.
func Interruptions(h *History) []Interruption {
	acks := make([][]time.Duration, h.Partitions)
	var all []time.Duration
	for _, s := range h.Sends {
		if s.Offset != Unknown {
			acks[s.Partition] = append(acks[s.Partition], s.Answered)
			all = append(all, s.Answered)
		}
	}
	slices.Sort(all)
	for _, partition := range acks {
		slices.Sort(partition)
	}
	found := make([]Interruption, 0, len(h.Faults))
	for i, fault := range h.Faults {
		until := h.End
		if i+1 < len(h.Faults) {
			until = h.Faults[i+1].At
		}
		interruption := Interruption{Fault: fault, Service: longestGap(all, fault.At, until)}
		for _, partition := range acks {
			interruption.Partition = max(interruption.Partition, longestGap(partition, fault.At, until))
		}
		found = append(found, interruption)
	}
	return found
}

// longestGap returns the longest gap between two of the times, which are in order, that ends or
// lies between from and until. The time before the first and after the last counts from and up to
// the span's ends.
func longestGap(times []time.Duration, from, until time.Duration) time.Duration {
	first, _ := slices.BinarySearch(times, from)
	before := from
	if first > 0 {
		before = times[first-1]
	}
	longest := time.Duration(0)
	for _, at := range times[first:] {
		longest = max(longest, min(at, until)-before)
		if at >= until {
			return longest
		}
		before = at
	}
	return max(longest, until-before)
}
