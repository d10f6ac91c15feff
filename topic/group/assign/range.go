package assign

import "github.com/sluice-project/sluice/topic"

// Range divides each topic into ranges, one for each of its members, in the order of the
// members: the first ones have one partition more if it does not divide evenly. Members
// that subscribe to the same topics of equal size so get the same numbers of each of them.
func Range(members []Member) []Partitions {
	readers := map[topic.ID]int32{}
	for i := range members {
		for _, t := range members[i].Topics {
			readers[t.ID]++
		}
	}
	shares := make([]Partitions, len(members))
	before := map[topic.ID]int32{} // members that have their range
	for i := range members {
		shares[i] = Partitions{}
		for _, t := range members[i].Topics {
			number, of := before[t.ID], readers[t.ID]
			before[t.ID]++
			quota, more := t.Partitions/of, t.Partitions%of
			from, to := number*quota+min(number, more), (number+1)*quota+min(number+1, more)
			for p := from; p < to; p++ {
				shares[i][t.ID] = append(shares[i][t.ID], p)
			}
		}
	}
	return shares
}
