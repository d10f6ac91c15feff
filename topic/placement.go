package topic

import (
	"cmp"
	"fmt"
	"slices"
)

// Which nodes keep a partition. Racks come first: no two replicas are in one rack
// while there is another. Then the nodes that keep the fewest, and as leader the
// one that is preferred by the fewest partitions. Pure functions: what they are
// given is not changed.

// place is a node with what it has to carry.
type place struct {
	node int32
	rack string
	// open says that it may get replicas: it is alive and is not being drained.
	// spare says that it may get some of a new partition if there are too few that
	// are open: it is dead, and may be back soon.
	open, spare bool
	// replicas is how many partitions it keeps, leaders of how many it is the
	// preferred leader.
	replicas, leaders int
}

// places are those of all nodes.
type places []place

// newPlaces returns the places of nodes, with what partitions put on them.
func newPlaces(nodes []Node, partitions [][]int32) places {
	all := make(places, len(nodes))
	for i, n := range nodes {
		all[i] = place{node: n.ID, rack: n.Rack, open: n.Alive && !n.Draining, spare: !n.Alive && !n.Draining}
	}
	for _, replicas := range partitions {
		all.load(replicas, 1)
	}
	return all
}

// find returns the place of a node, or nil.
func (ps places) find(node int32) *place {
	for i := range ps {
		if ps[i].node == node {
			return &ps[i]
		}
	}
	return nil
}

// openAt returns the place of a node if it may get replicas, or nil.
func (ps places) openAt(node int32) *place {
	if p := ps.find(node); p != nil && p.open {
		return p
	}
	return nil
}

// load adds a partition to what its nodes carry, or takes it away with -1.
func (ps places) load(replicas []int32, sign int) {
	for i, node := range replicas {
		if p := ps.find(node); p != nil {
			p.replicas += sign
			if i == 0 {
				p.leaders += sign
			}
		}
	}
}

// crowd is how many of the replicas are in a place's rack. A place without one is
// a rack of its own.
func (ps places) crowd(replicas []int32, at place) int {
	if at.rack == "" {
		return 0
	}
	count := 0
	for _, node := range replicas {
		if p := ps.find(node); p != nil && p.rack == at.rack {
			count++
		}
	}
	return count
}

// best returns the place that a set of replicas is best extended by, or nil if
// there is none. Turn changes who is chosen among equals.
func (ps places) best(replicas []int32, turn int) *place {
	var best *place
	for i := range ps {
		p := &ps[(i+turn)%len(ps)]
		if !p.open || slices.Contains(replicas, p.node) {
			continue
		}
		if best == nil || cmp.Or(
			cmp.Compare(ps.crowd(replicas, *p), ps.crowd(replicas, *best)),
			cmp.Compare(p.replicas, best.replicas), cmp.Compare(p.leaders, best.leaders)) < 0 {
			best = p
		}
	}
	return best
}

// prefer puts the one of the replicas first that fewest partitions prefer. What
// they carry does not count this partition.
func (ps places) prefer(replicas []int32) {
	first := 0
	for i, node := range replicas {
		p, best := ps.openAt(node), ps.openAt(replicas[first])
		if p != nil && (best == nil || p.leaders < best.leaders) {
			first = i
		}
	}
	node := replicas[first]
	copy(replicas[1:first+1], replicas[:first])
	replicas[0] = node
}

// assign returns the nodes of new partitions, the preferred leader first, and
// adds them to what the places carry. Where too few nodes are alive, as while one
// restarts, others that are to be back are among them, but fewer than half.
func (ps places) assign(partitions, replicas int) ([][]int32, error) {
	if err := ps.withSpares(replicas).enough(replicas); err != nil {
		return nil, err
	}
	if err := ps.enough(majority(replicas)); err != nil {
		return nil, fmt.Errorf("%d of %d replicas must be there: %w", majority(replicas), replicas, err)
	}
	assigned := make([][]int32, partitions)
	for i := range assigned {
		set := make([]int32, 0, replicas)
		for len(set) < replicas {
			p := ps.best(set, i)
			if p == nil {
				p = ps.withSpares(replicas).best(set, i)
			}
			set = append(set, p.node)
		}
		ps.prefer(set)
		ps.load(set, 1)
		assigned[i] = set
	}
	return assigned, nil
}

// withSpares returns the places, with the spare ones open if too few are.
func (ps places) withSpares(replicas int) places {
	if ps.enough(replicas) == nil {
		return ps
	}
	all := slices.Clone(ps)
	for i := range all {
		all[i].open = all[i].open || all[i].spare
	}
	return all
}

// enough returns an ErrInvalidReplicas if there are fewer open places than
// replicas.
func (ps places) enough(replicas int) error {
	open := 0
	for _, p := range ps {
		if p.open {
			open++
		}
	}
	switch most := min(open, maxReplicas); {
	case most == 0:
		return fmt.Errorf("%w: %d; no node can keep one now", ErrInvalidReplicas, replicas)
	case replicas >= 1 && replicas <= most:
		return nil
	default:
		return fmt.Errorf("%w: %d; %d nodes can keep one, so want 1 to %d", ErrInvalidReplicas, replicas, open, most)
	}
}

// resize returns replicas with as many nodes as wanted, of which as many as
// possible are there already: those on places that are not open go first, then those
// that share a rack, then those that carry most. The preferred leader stays if it
// can.
func (ps places) resize(replicas []int32, wanted int) ([]int32, error) {
	if wanted > len(replicas) {
		return ps.extend(replicas, wanted)
	}
	set := slices.Clone(replicas)
	for len(set) > wanted {
		worst := len(set) - 1
		for i := len(set) - 2; i >= 0; i-- {
			if ps.worse(set, i, worst) {
				worst = i
			}
		}
		set = slices.Delete(set, worst, worst+1)
	}
	return set, nil
}

// worse tells whether the replica at i is sooner given up than that at j.
func (ps places) worse(set []int32, i, j int) bool {
	a, b := ps.openAt(set[i]), ps.openAt(set[j])
	switch {
	case a == nil || b == nil:
		return a == nil && b != nil
	case i == 0 || j == 0:
		return j == 0
	}
	return cmp.Or(cmp.Compare(ps.crowd(set, *a), ps.crowd(set, *b)), cmp.Compare(a.replicas, b.replicas)) > 0
}

// extend adds nodes until there are as many as wanted.
func (ps places) extend(replicas []int32, wanted int) ([]int32, error) {
	set := slices.Clone(replicas)
	for len(set) < wanted {
		p := ps.best(set, 0)
		if p == nil {
			return nil, ps.enough(wanted)
		}
		set = append(set, p.node)
	}
	return set, nil
}

// without returns replicas in which another node has the place of one.
func (ps places) without(replicas []int32, node int32) ([]int32, error) {
	at := slices.Index(replicas, node)
	if at < 0 {
		return replicas, nil
	}
	rest := slices.Delete(slices.Clone(replicas), at, at+1)
	p := ps.best(rest, 0)
	if p == nil {
		return nil, fmt.Errorf("%w: %d, and no node but %v can", ErrInvalidReplicas, len(replicas), rest)
	}
	set := slices.Concat(rest, []int32{p.node})
	if at == 0 {
		ps.prefer(set)
	}
	return set, nil
}

// balance changes at most as many partitions as it may, so that replicas are
// spread over racks, nodes keep as many each, and are preferred as leaders by as
// many. It changes what is given, and the places, and returns which partitions
// were changed. A mere change of the preferred leader moves no data, and
// does not count. Each step lessens the crowding in racks, or else the unevenness
// of the nodes, so that it ends, and then finds nothing more to do.
func (ps places) balance(partitions [][]int32, most int) (changed map[int]bool) {
	changed = map[int]bool{}
	for range most {
		i := ps.spread(partitions)
		if i < 0 {
			i = ps.even(partitions)
		}
		if i < 0 {
			break
		}
		changed[i] = true
	}
	for more := true; more; {
		more = false
		for i := range partitions {
			if ps.evenLeaders(partitions, i) {
				changed[i], more = true, true
			}
		}
	}
	return changed
}

// spread moves one replica that shares its rack with another of its partition to a
// rack that has fewer of them, and returns the partition; -1 if there is none.
func (ps places) spread(partitions [][]int32) int {
	for i, set := range partitions {
		for at, node := range slices.Backward(set) {
			p := ps.openAt(node)
			if p == nil || ps.crowd(set, *p) < 2 {
				continue
			}
			rest := slices.Delete(slices.Clone(set), at, at+1)
			if to := ps.best(rest, 0); ps.crowd(rest, *to) < ps.crowd(rest, *p) {
				ps.replace(partitions, i, at, to.node)
				return i
			}
		}
	}
	return -1
}

// even moves one replica from a node that keeps many to one that keeps at least two
// fewer, without crowding its rack, and returns the partition; -1 if there is
// none.
func (ps places) even(partitions [][]int32) int {
	order := slices.DeleteFunc(slices.Clone(ps), func(p place) bool { return !p.open })
	slices.SortStableFunc(order, func(x, y place) int { return cmp.Compare(y.replicas, x.replicas) })
	for _, from := range order {
		for _, to := range slices.Backward(order) {
			if from.replicas-to.replicas < 2 {
				break
			}
			for i, set := range partitions {
				at := slices.Index(set, from.node)
				if at < 0 || slices.Contains(set, to.node) {
					continue
				}
				rest := slices.Delete(slices.Clone(set), at, at+1)
				if ps.crowd(rest, to) <= ps.crowd(rest, from) {
					ps.replace(partitions, i, at, to.node)
					return i
				}
			}
		}
	}
	return -1
}

// evenLeaders makes another replica the preferred leader of a partition, if at
// least two more prefer the present one.
func (ps places) evenLeaders(partitions [][]int32, i int) bool {
	set := partitions[i]
	first := ps.openAt(set[0])
	if first == nil {
		return false
	}
	for at, node := range set {
		p := ps.openAt(node)
		if p == nil || first.leaders-p.leaders < 2 {
			continue
		}
		swapped := slices.Clone(set)
		swapped[0], swapped[at] = set[at], set[0]
		ps.load(set, -1)
		ps.load(swapped, 1)
		partitions[i] = swapped
		return true
	}
	return false
}

// replace puts another node in the place of one replica.
func (ps places) replace(partitions [][]int32, i, at int, node int32) {
	set := slices.Clone(partitions[i])
	set[at] = node
	ps.load(partitions[i], -1)
	ps.load(set, 1)
	partitions[i] = set
}
