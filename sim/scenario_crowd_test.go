package sim

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// crowd is a model of a room whose line is not stored, as docs/decisions/0066 describes it:
// instances give out numbers from blocks that they lease, people whose numbers are called check in
// at the front, which is a room as it is today. Time passes in seconds.
type crowd struct {
	people, instances int
	capacity          int
	visit             float64 // mean, of a visit
	patience          float64 // mean, until somebody gives up
	poll              float64 // the longest time until a person who is called knows it
	ahead             float64 // for how many seconds of free slots people are called ahead

	random *rand.Rand
	result crowdResult
}

// crowdResult is what a run has shown.
type crowdResult struct {
	seconds, admitted int
	commands          int     // of the store, by the line and the front
	mostCommands      int     // in a second
	mostInside        int     //
	mostFront         int     // people who checked in and are not inside yet
	blocks            int     // leased
	idle              float64 // share of the slots that were free while people waited
	overtaken         float64 // the most seconds by which somebody came later and was let in before
}

// person is one who waits: when it came, and when it gives up.
type person struct{ came, leaves float32 }

// arrival is a person at the front, who checks in at a time.
type arrival struct {
	at     float64
	number int
}

type front []arrival

func (f front) Len() int           { return len(f) }
func (f front) Less(i, j int) bool { return f[i].number < f[j].number }
func (f front) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *front) Push(x any)        { *f = append(*f, x.(arrival)) }
func (f *front) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// arrive lets people come in ten minutes, most of them in the first, to instances that give out
// numbers from blocks of about a second. It returns the people by number; a number of a block that
// was not used up has nobody.
func (c *crowd) arrive() []person {
	const minutes = 10
	var line []person
	blocks := make([][2]int, c.instances) // the next number and the end of each instance's block
	last := make([]int, c.instances)
	left := c.people
	for second := 0; left > 0; second++ {
		n := min(left, 1+int(float64(c.people)*(math.Exp(-float64(second)/60)/75+0.3/(60*minutes))))
		left -= n
		counts := make([]int, c.instances)
		for range n {
			counts[c.random.IntN(c.instances)]++
		}
		for i, count := range counts {
			blocks[i] = [2]int{} // what is left of the last second's block is not used
			for at := range count {
				if blocks[i][0] == blocks[i][1] {
					size := max(16, last[i]*5/4)
					blocks[i] = [2]int{len(line), len(line) + size}
					line = append(line, make([]person, size)...)
					c.result.blocks++
					c.result.commands++
				}
				came := float64(second) + float64(at)/float64(count)
				line[blocks[i][0]] = person{float32(came), float32(came + c.random.ExpFloat64()*c.patience)}
				blocks[i][0]++
			}
			last[i] = count
		}
	}
	return line
}

// run lets people in until nobody is left.
func (c *crowd) run() crowdResult {
	line := c.arrive()
	r := &c.result
	var coming, waiting front // by time, and by number
	ends := make([]int, 1<<20)
	inside, serving, show := 0, 0, 1.0
	calledAt, cameAt := 0.0, 0.0
	latest, freeSlots, slots := float32(0), 0, 0
	for second := 0; serving < len(line) || len(coming)+len(waiting) > 0; second++ {
		now, before := float64(second), r.commands
		inside -= ends[second]
		// The tender raises what is served, so that enough people check in for the slots that will be free.
		free := c.capacity - inside
		want := float64(free) + float64(c.capacity)/c.visit*c.ahead - float64(len(waiting)+len(coming))
		r.commands++ // the broadcast of what is served
		from := serving
		for n := int(math.Ceil(want / show)); n > 0 && serving < len(line) && float64(line[serving].came) <= now; n-- {
			p := line[serving]
			if p.came > 0 || p.leaves > 0 { // a number of nobody costs nothing: blocks are known
				calledAt++
				if checks := now + c.random.Float64()*c.poll; checks < float64(p.leaves) {
					coming = append(coming, arrival{checks, serving})
					cameAt++
				}
			} else {
				n++
			}
			serving++
		}
		if calledAt > 1000 {
			show = max(0.02, cameAt/calledAt)
			calledAt, cameAt = calledAt/2, cameAt/2
		}
		// People who have learned of it check in.
		slices.SortFunc(coming, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
		for len(coming) > 0 && coming[0].at < now+1 {
			heap.Push(&waiting, coming[0])
			coming = coming[1:]
			r.commands++
		}
		r.mostFront = max(r.mostFront, len(waiting))
		for inside < c.capacity && len(waiting) > 0 {
			a := heap.Pop(&waiting).(arrival)
			inside++
			r.admitted++
			ends[min(len(ends)-1, second+1+int(c.random.ExpFloat64()*c.visit))]++
			latest = max(latest, line[a.number].came)
			r.overtaken = max(r.overtaken, float64(latest-line[a.number].came))
		}
		r.mostInside = max(r.mostInside, inside)
		if from < len(line) && second > int(c.poll)+1 {
			freeSlots, slots = freeSlots+c.capacity-inside, slots+c.capacity
		}
		r.mostCommands = max(r.mostCommands, r.commands-before)
		r.seconds = second
	}
	r.idle = float64(freeSlots) / float64(max(1, slots))
	return *r
}

// TestTenMillionPeople runs the design of docs/decisions/0066, with a hundredth of the people
// unless SLUICE_LONG is set: capacity holds, slots are not idle, nobody is overtaken by more than
// the length of a block and the time in which people learn that they are called, and the store gets
// as many commands as the front does.
func TestTenMillionPeople(t *testing.T) {
	c := &crowd{
		people: 100_000, instances: 4, capacity: 1000, visit: 180, patience: 1200, poll: 5, ahead: 8,
		random: rand.New(rand.NewPCG(1, 2)),
	}
	if os.Getenv("SLUICE_LONG") != "" {
		c.people, c.instances, c.capacity = 10_000_000, 50, 50_000
	}
	r := c.run()
	t.Logf("%+v", r)
	switch {
	case r.mostInside > c.capacity:
		t.Errorf("%d were inside, of %d", r.mostInside, c.capacity)
	case r.idle > 0.02:
		t.Errorf("%.1f %% of the slots were idle while people waited", 100*r.idle)
	case r.overtaken > 1+c.poll+1:
		t.Errorf("somebody was overtaken by %.1f s", r.overtaken)
	case r.admitted < c.people/50:
		t.Errorf("%d of %d people came in", r.admitted, c.people)
	case r.mostCommands > 2*c.instances+c.capacity:
		t.Errorf("%d commands of the store in a second", r.mostCommands)
	}
}

// BenchmarkCrowdPosition measures how an instance finds a position from the table of blocks: how many
// numbers before it have somebody.
func BenchmarkCrowdPosition(b *testing.B) {
	type block struct{ first, before int }
	table := make([]block, 28_500)
	for i := 1; i < len(table); i++ {
		table[i] = block{table[i-1].first + 350, table[i-1].before + 300}
	}
	random := rand.New(rand.NewPCG(1, 2))
	last := table[len(table)-1].first
	for b.Loop() {
		number := random.IntN(last)
		at, _ := slices.BinarySearchFunc(table, number, func(t block, n int) int { return cmp.Compare(t.first, n+1) })
		if found := table[at-1]; found.before > found.first {
			b.Fatal("more people than numbers")
		}
	}
}
