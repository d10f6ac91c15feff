package assign_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group/assign"
)

func id(number int) topic.ID { return topic.ID{15: byte(number), 0: byte(7 * number)} }

// drawMembers draws members with subscriptions; all have the same one if alike is set.
func drawMembers(t *rapid.T, alike bool) []assign.Member {
	topics := make([]assign.Topic, rapid.IntRange(1, 5).Draw(t, "topics"))
	for i := range topics {
		topics[i] = assign.Topic{ID: id(i), Partitions: rapid.Int32Range(1, 12).Draw(t, "partitions")}
	}
	members := make([]assign.Member, rapid.IntRange(1, 9).Draw(t, "members"))
	for i := range members {
		for _, of := range topics {
			if alike || rapid.Bool().Draw(t, "subscribes") {
				members[i].Topics = append(members[i].Topics, of)
			}
		}
	}
	// Some partitions that members had do not exist any more.
	for topic := range 6 {
		for number := range int32(14) {
			if owner := rapid.IntRange(-1, len(members)-1).Draw(t, "had"); owner >= 0 {
				m := &members[owner]
				if m.Had == nil {
					m.Had = assign.Partitions{}
				}
				m.Had[id(topic)] = append(m.Had[id(topic)], number)
			}
		}
	}
	return members
}

// checkComplete checks that exactly the partitions of topics with members have an owner, which
// subscribes to the topic.
func checkComplete(t *rapid.T, members []assign.Member, shares []assign.Partitions) {
	owned := map[string]int{}
	for i, share := range shares {
		for of, numbers := range share {
			if !slices.IsSorted(numbers) || len(numbers) == 0 {
				t.Fatalf("member %d has %v", i, numbers)
			}
			at := slices.IndexFunc(members[i].Topics, func(t assign.Topic) bool { return t.ID == of })
			for _, number := range numbers {
				if at < 0 || number >= members[i].Topics[at].Partitions {
					t.Fatalf("member %d has %v/%d, and does not read it", i, of, number)
				}
				owned[fmt.Sprint(of, number)]++
			}
		}
	}
	want := map[string]int{}
	for _, m := range members {
		for _, of := range m.Topics {
			for number := range of.Partitions {
				want[fmt.Sprint(of.ID, number)] = 1
			}
		}
	}
	if fmt.Sprint(owned) != fmt.Sprint(want) {
		t.Fatalf("owners: %v, want %v", owned, want)
	}
}

func TestPoliciesAssignEachPartitionOnce(t *testing.T) {
	for name, policy := range assign.Policies {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				members := drawMembers(t, rapid.Bool().Draw(t, "alike"))
				checkComplete(t, members, policy(members))
			})
		})
	}
}

// Members that read the same get equal shares, and as few partitions as possible move.
func TestUniformIsEvenAndSticky(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t, true)
		shares := assign.Uniform(members)
		total := 0
		for _, of := range members[0].Topics {
			total += int(of.Partitions)
		}
		quota, more := total/len(members), total%len(members)
		kept, most, above := 0, 0, 0
		for i, share := range shares {
			if count := share.Count(); count < quota || count > quota+1 {
				t.Fatalf("member %d has %d of %d partitions", i, count, total)
			}
			had := 0
			for _, of := range members[i].Topics {
				for _, number := range members[i].Had[of.ID] {
					if number < of.Partitions {
						had++
					}
				}
			}
			most += min(had, quota)
			if had > quota {
				above++
			}
			kept += share.Both(members[i].Had).Count()
		}
		if most += min(above, more); kept != most {
			t.Fatalf("%d partitions stay where they were, want %d", kept, most)
		}
	})
}

// Nobody could have fewer by handing partitions on, and a target is its own successor.
func TestUniformIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t, false)
		shares := assign.Uniform(members)
		reaches := make([][]bool, len(members))
		for i := range members {
			reaches[i] = make([]bool, len(members))
			for j := range members {
				reaches[i][j] = slices.ContainsFunc(members[j].Topics, func(of assign.Topic) bool { return len(shares[i][of.ID]) > 0 })
			}
		}
		for k := range members {
			for i := range members {
				for j := range members {
					reaches[i][j] = reaches[i][j] || reaches[i][k] && reaches[k][j]
				}
			}
		}
		for i := range members {
			for j := range members {
				if a, b := shares[i].Count(), shares[j].Count(); reaches[i][j] && a > b+1 {
					t.Fatalf("member %d has %d and could hand one on to member %d, which has %d", i, a, j, b)
				}
			}
			members[i].Had = shares[i]
		}
		for i, again := range assign.Uniform(members) {
			if !again.Equal(shares[i]) {
				t.Fatalf("member %d had %v, and gets %v though nothing has changed", i, shares[i], again)
			}
		}
	})
}

func TestRange(t *testing.T) {
	a, b := assign.Topic{ID: id(1), Partitions: 3}, assign.Topic{ID: id(2), Partitions: 3}
	tests := []struct {
		name    string
		members []assign.Member
		want    []assign.Partitions
	}{
		{"the same numbers of both topics", []assign.Member{{Topics: []assign.Topic{a, b}}, {Topics: []assign.Topic{a, b}}},
			[]assign.Partitions{{a.ID: {0, 1}, b.ID: {0, 1}}, {a.ID: {2}, b.ID: {2}}}},
		{"a topic that one reads", []assign.Member{{Topics: []assign.Topic{a}}, {Topics: []assign.Topic{a, b}}},
			[]assign.Partitions{{a.ID: {0, 1}}, {a.ID: {2}, b.ID: {0, 1, 2}}}},
		{"more members than partitions", []assign.Member{{Topics: []assign.Topic{a}}, {Topics: []assign.Topic{a}}, {Topics: []assign.Topic{a}}, {Topics: []assign.Topic{a}}},
			[]assign.Partitions{{a.ID: {0}}, {a.ID: {1}}, {a.ID: {2}}, {}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for i, got := range assign.Range(test.members) {
				if !got.Equal(test.want[i]) {
					t.Errorf("member %d gets %v, want %v", i, got, test.want[i])
				}
			}
		})
	}
}

// BenchmarkUniform is the arrival of the last of 100 members over 1,000 partitions.
func BenchmarkUniform(b *testing.B) {
	of := assign.Topic{ID: id(1), Partitions: 1000}
	members := make([]assign.Member, 100)
	for i := range members {
		members[i].Topics = []assign.Topic{of}
	}
	for i, share := range assign.Uniform(members[:99]) {
		members[i].Had = share
	}
	for b.Loop() {
		assign.Uniform(members)
	}
}
