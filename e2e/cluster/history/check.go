package history

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// source is one producer in one partition.
type source struct {
	producer  int
	partition int32
}

// place is the position of a record.
type place struct {
	partition int32
	offset    int64
}

// checker indexes the log.
type checker struct {
	violations []Violation
	// at has the log's records by place; found has the offsets of each record by its number.
	at    map[place]Record
	found map[source]map[int64][]int64
}

// Check returns the violations, ordered by kind. It is empty if the cluster has kept its promises.
func Check(h *History) []Violation {
	c := &checker{at: map[place]Record{}, found: map[source]map[int64][]int64{}}
	c.violations = slices.Clone(h.Complaints)
	c.readLog(h.Log)
	c.checkSends(h.Sends)
	for _, reader := range slices.Sorted(maps.Keys(h.Reads)) {
		c.checkReader(reader, h.Reads[reader], h.Log)
	}
	c.checkProcessed(h)
	c.checkCommits(h.Commits)
	slices.SortStableFunc(c.violations, func(a, b Violation) int {
		if a.Kind < b.Kind {
			return -1
		} else if a.Kind > b.Kind {
			return 1
		}
		return 0
	})
	return c.violations
}

func (c *checker) violated(kind, format string, args ...any) {
	c.violations = append(c.violations, Violation{kind, fmt.Sprintf(format, args...)})
}

// readLog checks the log itself: order, and no duplicates.
func (c *checker) readLog(log []Record) {
	end, last := map[int32]int64{}, map[source]Record{}
	for _, r := range log {
		if next, known := end[r.Partition]; known && r.Offset < next {
			c.violated("disagreed", "the log of partition %d goes from offset %d back to %d", r.Partition, next-1, r.Offset)
		}
		end[r.Partition] = r.Offset + 1
		if r.Changed {
			c.violated("foreign", "%s has another content than was sent", r)
		}
		c.at[place{r.Partition, r.Offset}] = r
		from := source{r.Producer, r.Partition}
		if c.found[from] == nil {
			c.found[from] = map[int64][]int64{}
		}
		before, some := last[from]
		if offsets := c.found[from][r.Number]; len(offsets) > 0 {
			c.violated("doubled", "%s is at offset %d, too", r, offsets[0])
		} else if some && r.Number < before.Number {
			c.violated("reordered", "%s comes after %s", r, before)
		}
		c.found[from][r.Number] = append(c.found[from][r.Number], r.Offset)
		last[from] = r
	}
}

// checkSends looks for each sent record in the log, and for records that were not sent.
func (c *checker) checkSends(sends []Send) {
	sent := map[source]map[int64]bool{}
	for _, s := range sends {
		from := source{s.Producer, s.Partition}
		if sent[from] == nil {
			sent[from] = map[int64]bool{}
		}
		sent[from][s.Number] = true
		if s.Offset == Unknown {
			continue
		}
		switch offsets := c.found[from][s.Number]; {
		case len(offsets) == 0:
			c.violated("lost", "record %d of producer %d, acknowledged at %v at offset %d of partition %d", s.Number, s.Producer, s.Answered.Round(time.Millisecond), s.Offset, s.Partition)
		case !slices.Contains(offsets, s.Offset):
			c.violated("lost", "record %d of producer %d is at offset %d of partition %d, and was acknowledged at %d", s.Number, s.Producer, offsets[0], s.Partition, s.Offset)
		}
	}
	for from, numbers := range c.found {
		for number, offsets := range numbers {
			if !sent[from][number] {
				c.violated("foreign", "record %d of producer %d at offset %d of partition %d was not sent", number, from.producer, offsets[0], from.partition)
			}
		}
	}
}

// checkReader compares the records of a reader, one partition after another, with the log between
// its first and its last.
func (c *checker) checkReader(name string, reads, log []Record) {
	by := map[int32][]Record{}
	for _, r := range reads {
		by[r.Partition] = append(by[r.Partition], r)
		if in, is := c.at[place{r.Partition, r.Offset}]; !is {
			c.violated("disagreed", "%s was given %s, which the log has not", name, r)
		} else if in != r {
			c.violated("disagreed", "%s was given %s, and the log has %s", name, r, in)
		}
	}
	logs := map[int32][]Record{}
	for _, r := range log {
		logs[r.Partition] = append(logs[r.Partition], r)
	}
	for partition, given := range by {
		in := logs[partition]
		next := sort.Search(len(in), func(i int) bool { return in[i].Offset >= given[0].Offset })
		for i, r := range given {
			if i > 0 && r.Offset <= given[i-1].Offset {
				c.violated("disagreed", "%s was given %s after %s", name, r, given[i-1])
				continue
			}
			if next < len(in) && in[next].Offset < r.Offset {
				c.violated("disagreed", "%s was not given %s, and then %s", name, in[next], r)
				next += sort.Search(len(in)-next, func(i int) bool { return in[next+i].Offset >= r.Offset })
			}
			if next < len(in) && in[next].Offset == r.Offset {
				next++
			}
		}
	}
}

// checkProcessed checks that the group received the whole log, and nothing else.
func (c *checker) checkProcessed(h *History) {
	given := map[place]bool{}
	for _, r := range h.Processed {
		at := place{r.Partition, r.Offset}
		given[at] = true
		if in, is := c.at[at]; !is {
			c.violated("disagreed", "the group was given %s, which the log has not", r)
		} else if in != r {
			c.violated("disagreed", "the group was given %s, and the log has %s", r, in)
		}
	}
	for _, r := range h.Log {
		if !given[place{r.Partition, r.Offset}] {
			c.violated("unprocessed", "the group was not given %s", r)
		}
	}
}

// checkCommits checks that no fetched offset is below one that was acknowledged or seen before.
func (c *checker) checkCommits(commits []Commit) {
	by := map[int32][]Commit{}
	for _, commit := range commits {
		by[commit.Partition] = append(by[commit.Partition], commit)
	}
	for _, partition := range slices.Sorted(maps.Keys(by)) {
		known := by[partition]
		slices.SortStableFunc(known, func(a, b Commit) int { return int(a.Answered - b.Answered) })
		highest := make([]Commit, len(known)) // maxima of the prefixes
		for i, commit := range known {
			highest[i] = commit
			if i > 0 && highest[i-1].Offset > commit.Offset {
				highest[i] = highest[i-1]
			}
			if !commit.Seen {
				continue
			}
			before := sort.Search(i, func(j int) bool { return known[j].Answered > commit.Asked })
			if before > 0 && highest[before-1].Offset > commit.Offset {
				c.violated("regressed", "partition %d: at %v offset %d was committed, and at %v it is %d", partition,
					highest[before-1].Answered.Round(time.Millisecond), highest[before-1].Offset, commit.Answered.Round(time.Millisecond), commit.Offset)
			}
		}
	}
}

// String names a record.
func (r Record) String() string {
	return fmt.Sprintf("record %d of producer %d at offset %d of partition %d", r.Number, r.Producer, r.Offset, r.Partition)
}
