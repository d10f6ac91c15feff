package assign

import "github.com/sluice-project/sluice/topic"

// SimpleName is Kafka's name of the policy of share groups.
const SimpleName = "simple"

// Simple is the policy of share groups, in which a partition may have several members: each partition
// gets a member that reads its topic, the least loaded one, and then each member without
// partitions gets one, that with the fewest members. The policy ignores earlier targets: nothing is lost
// when a partition of a share group moves.
func Simple(members []Member) []Partitions {
	shares := make([]map[topic.ID][]int32, len(members))
	load := make([]int, len(members))
	readers := map[Topic][]int{}
	var topics []Topic
	for i, m := range members {
		shares[i] = map[topic.ID][]int32{}
		for _, of := range m.Topics {
			if readers[of] == nil {
				topics = append(topics, of)
			}
			readers[of] = append(readers[of], i)
		}
	}
	count := map[topic.ID][]int{} // members of each partition
	give := func(i int, of Topic, number int32) {
		shares[i][of.ID] = append(shares[i][of.ID], number)
		load[i]++
		count[of.ID][number]++
	}
	for _, of := range topics {
		count[of.ID] = make([]int, of.Partitions)
		for number := range of.Partitions {
			least := readers[of][0]
			for _, i := range readers[of] {
				if load[i] < load[least] {
					least = i
				}
			}
			give(least, of, number)
		}
	}
	all := make([]Partitions, len(members))
	for i, m := range members {
		if load[i] == 0 {
			if of, number, found := fewest(m.Topics, count); found {
				give(i, of, number)
			}
		}
		all[i] = Sorted(shares[i])
	}
	return all
}

// fewest returns the partition with the fewest members, of some topics.
func fewest(topics []Topic, count map[topic.ID][]int) (of Topic, number int32, found bool) {
	for _, t := range topics {
		for n, members := range count[t.ID] {
			if !found || members < count[of.ID][number] {
				of, number, found = t, int32(n), true
			}
		}
	}
	return of, number, found
}
