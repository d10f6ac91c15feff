package assign

import (
	"maps"
	"slices"

	"github.com/sluice-project/sluice/topic"
)

// Topic is a topic to assign, with its number of partitions.
type Topic struct {
	ID         topic.ID
	Partitions int32
}

// Partitions are partitions of topics, by topic: each list ascends and is not empty. They
// are never modified.
type Partitions map[topic.ID][]int32

// Member is a member of a group.
type Member struct {
	// Topics are the topics that it subscribes to, each once.
	Topics []Topic
	// Had are the partitions of its previous target. No other member has any of them.
	Had Partitions
}

// Policy returns the partitions of each member, in the order of the members.
type Policy func(members []Member) []Partitions

// Policies are the policies, by Kafka's names of them.
var Policies = map[string]Policy{"uniform": Uniform, "range": Range}

// Default is the name of the policy of a group whose members ask for none.
const Default = "uniform"

// Count returns the number of partitions.
func (p Partitions) Count() (count int) {
	for _, numbers := range p {
		count += len(numbers)
	}
	return count
}

// Topics returns the topics, in order of their identities.
func (p Partitions) Topics() []topic.ID {
	return slices.SortedFunc(maps.Keys(p), func(a, b topic.ID) int { return slices.Compare(a[:], b[:]) })
}

// Has reports whether a partition is one of them.
func (p Partitions) Has(of topic.ID, number int32) bool {
	_, found := slices.BinarySearch(p[of], number)
	return found
}

// Both returns the partitions that are in p and in other.
func (p Partitions) Both(other Partitions) Partitions {
	return p.where(other.Has)
}

// Without returns the partitions of p that are not in other.
func (p Partitions) Without(other Partitions) Partitions {
	return p.where(func(of topic.ID, number int32) bool { return !other.Has(of, number) })
}

// where returns the partitions of which keep is true.
func (p Partitions) where(keep func(of topic.ID, number int32) bool) Partitions {
	kept := Partitions{}
	for of, numbers := range p {
		var some []int32
		for _, number := range numbers {
			if keep(of, number) {
				some = append(some, number)
			}
		}
		if len(some) > 0 {
			kept[of] = some
		}
	}
	return kept
}

// And returns the partitions that are in p or in other.
func (p Partitions) And(other Partitions) Partitions {
	all := Partitions{}
	for _, part := range []Partitions{p, other} {
		for of, numbers := range part {
			all[of] = append(all[of], numbers...)
		}
	}
	all.sort()
	return all
}

// Equal reports whether both have the same partitions.
func (p Partitions) Equal(other Partitions) bool {
	if len(p) != len(other) {
		return false
	}
	for of, numbers := range p {
		if !slices.Equal(numbers, other[of]) {
			return false
		}
	}
	return true
}

// Sorted returns partitions of any order, some of them maybe several times, as Partitions. It
// changes the lists.
func Sorted(lists map[topic.ID][]int32) Partitions {
	all := Partitions{}
	for of, numbers := range lists {
		if len(numbers) > 0 {
			all[of] = numbers
		}
	}
	all.sort()
	return all
}

func (p Partitions) sort() {
	for of, numbers := range p {
		slices.Sort(numbers)
		p[of] = slices.Compact(numbers)
	}
}
