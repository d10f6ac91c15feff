package assign

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/sluice-project/sluice/topic"
)

// Uniform balances the numbers of partitions that members have: no other assignment is more
// even. Each member keeps what it had, except for the partitions that others need for
// that. If all members subscribe to the same topics, their numbers differ by at most one, and as few
// partitions as possible move.
//
// The balance is that of an optimal semi-matching: there is no chain of members, each of which could
// hand a partition to the next, from one member to another that has two fewer or less.
func Uniform(members []Member) []Partitions {
	s := keepShares(members)
	s.assignFree()
	s.balance()
	all := make([]Partitions, len(members))
	for i := range members {
		all[i] = Sorted(s.has[i])
	}
	return all
}

// shares is an assignment that is being made. Members are numbered as in the argument.
type shares struct {
	// has are the partitions of each member: those that it keeps come first.
	has  []map[topic.ID][]int32
	load []int
	// topics are the topics with members, and readers the members of each.
	topics  []Topic
	readers map[topic.ID][]int
	taken   map[topic.ID][]bool
}

// keepShares returns the partitions that members had and may keep.
func keepShares(members []Member) *shares {
	s := &shares{
		has: make([]map[topic.ID][]int32, len(members)), load: make([]int, len(members)),
		readers: map[topic.ID][]int{}, taken: map[topic.ID][]bool{},
	}
	for i := range members {
		s.has[i] = make(map[topic.ID][]int32, len(members[i].Had))
		for _, t := range members[i].Topics {
			if s.taken[t.ID] == nil {
				s.topics = append(s.topics, t)
				s.taken[t.ID] = make([]bool, t.Partitions)
			}
			s.readers[t.ID] = append(s.readers[t.ID], i)
			for _, p := range members[i].Had[t.ID] {
				if p < t.Partitions && !s.taken[t.ID][p] {
					s.give(i, t.ID, p)
				}
			}
		}
	}
	return s
}

func (s *shares) give(member int, of topic.ID, number int32) {
	s.taken[of][number] = true
	s.has[member][of] = append(s.has[member][of], number)
	s.load[member]++
}

// assignFree gives each partition without an owner to the member that has the fewest, beginning
// with the topics that the fewest read.
func (s *shares) assignFree() {
	slices.SortFunc(s.topics, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(len(s.readers[a.ID]), len(s.readers[b.ID])), slices.Compare(a.ID[:], b.ID[:]))
	})
	for _, t := range s.topics {
		var least *byLoad
		for p, taken := range s.taken[t.ID] {
			if taken {
				continue
			}
			if least == nil {
				least = &byLoad{slices.Clone(s.readers[t.ID]), s.load}
				heap.Init(least)
			}
			s.give(least.members[0], t.ID, int32(p))
			heap.Fix(least, 0)
		}
	}
}

// byLoad is a heap of members, the least loaded one first.
type byLoad struct {
	members []int
	load    []int
}

func (h *byLoad) Len() int      { return len(h.members) }
func (h *byLoad) Swap(i, j int) { h.members[i], h.members[j] = h.members[j], h.members[i] }
func (h *byLoad) Push(any)      {} // the heap does not grow
func (h *byLoad) Pop() any      { return nil }
func (h *byLoad) Less(i, j int) bool {
	a, b := h.members[i], h.members[j]
	return cmp.Or(cmp.Compare(h.load[a], h.load[b]), cmp.Compare(a, b)) < 0
}

// balance moves partitions from the most loaded members along chains. A member from which no chain
// leads to a much less loaded one is settled, as are all that can be reached from it: later moves are
// between less loaded members, so they change nothing for these.
func (s *shares) balance() {
	settled := make([]bool, len(s.load))
	for {
		most := -1
		for i := range s.load {
			if !settled[i] && (most < 0 || s.load[i] > s.load[most]) {
				most = i
			}
		}
		if most < 0 || s.load[most] <= slices.Min(s.load)+1 {
			return
		}
		to, chain := s.reach(most)
		if s.load[to] > s.load[most]-2 {
			for i := range chain {
				settled[i] = true
			}
			continue
		}
		for to != most {
			from := chain[to]
			s.move(from.member, to, from.topic)
			to = from.member
		}
	}
}

// link says from which member a chain comes, and by a partition of which topic.
type link struct {
	member int
	topic  topic.ID
}

// reach returns the members to which chains lead from one, with the last link of each, and the least
// loaded of them.
func (s *shares) reach(start int) (least int, chain map[int]link) {
	least, chain = start, map[int]link{start: {member: start}}
	seen := map[topic.ID]bool{}
	for queue := []int{start}; len(queue) > 0 && len(chain) < len(s.load); queue = queue[1:] {
		at := queue[0]
		for _, of := range Partitions(s.has[at]).Topics() {
			if seen[of] {
				continue
			}
			seen[of] = true
			for _, next := range s.readers[of] {
				if _, known := chain[next]; known {
					continue
				}
				chain[next] = link{at, of}
				queue = append(queue, next)
				if s.load[next] < s.load[least] {
					least = next
				}
			}
		}
	}
	return least, chain
}

// move moves a partition: if the member has one that it did not keep, that one.
func (s *shares) move(from, to int, of topic.ID) {
	numbers := s.has[from][of]
	last := len(numbers) - 1
	s.has[to][of] = append(s.has[to][of], numbers[last])
	if s.has[from][of] = numbers[:last:last]; last == 0 {
		delete(s.has[from], of)
	}
	s.load[from]--
	s.load[to]++
}
