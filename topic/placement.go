package topic

import (
	"cmp"
	"fmt"
	"slices"
)

// These functions choose the nodes that keep a partition. Racks come first: no two
// replicas are in one rack while another rack is available. Then come the nodes that
// keep the fewest replicas; the leader is the node that the fewest partitions
// prefer. The functions are pure, unless they say that they change an argument.

// Place is a node with its load.
type Place struct {
	node int32
	rack string
	// Open reports whether the node may get replicas: it is alive and not draining.
	// spare reports whether it may get replicas of a new partition if too few nodes
	// are open: it is dead, and may be back soon.
	Open, spare bool
	// replicas is the number of partitions that the node keeps, leaders the number
	// whose preferred leader it is.
	replicas, leaders int
}

// Places holds the places of all nodes.
type Places []Place

// NewPlaces returns the places of nodes, with the load of these partitions.
func NewPlaces(nodes []Node, partitions [][]int32) Places {
	all := make(Places, len(nodes))
	for i, n := range nodes {
		all[i] = Place{node: n.ID, rack: n.Rack, Open: n.Alive && !n.Draining, spare: !n.Alive && !n.Draining}
	}
	for _, replicas := range partitions {
		all.Load(replicas, 1)
	}
	return all
}

// find returns the place of a node, or nil.
func (ps Places) find(node int32) *Place {
	for i := range ps {
		if ps[i].node == node {
			return &ps[i]
		}
	}
	return nil
}

// openAt returns the place of a node if it may get replicas, or nil.
func (ps Places) openAt(node int32) *Place {
	if p := ps.find(node); p != nil && p.Open {
		return p
	}
	return nil
}

// Load adds a partition to the load of its nodes, or subtracts it with sign -1.
func (ps Places) Load(replicas []int32, sign int) {
	for i, node := range replicas {
		if p := ps.find(node); p != nil {
			p.replicas += sign
			if i == 0 {
				p.leaders += sign
			}
		}
	}
}

// crowd returns the number of replicas in a place's rack. A place without a rack
// is a rack of its own.
func (ps Places) crowd(replicas []int32, at Place) int {
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

// best returns the best place for one more replica, or nil if there is none. The
// turn chooses among equals.
func (ps Places) best(replicas []int32, turn int) *Place {
	var best *Place
	for i := range ps {
		p := &ps[(i+turn)%len(ps)]
		if !p.Open || slices.Contains(replicas, p.node) {
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

// prefer puts the replica first that the fewest partitions prefer. The loads must
// not include this partition.
func (ps Places) prefer(replicas []int32) {
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

// Assign returns the nodes of new partitions, the preferred leader first, and adds
// them to the loads. If too few nodes are alive, for example while one restarts,
// spare ones are used too, but fewer than half.
func (ps Places) Assign(partitions, replicas int) ([][]int32, error) {
	if err := ps.withSpares(replicas).enough(replicas); err != nil {
		return nil, err
	}
	if err := ps.enough(Majority(replicas)); err != nil {
		return nil, fmt.Errorf("%d of %d replicas must be there: %w", Majority(replicas), replicas, err)
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
		ps.Load(set, 1)
		assigned[i] = set
	}
	return assigned, nil
}

// withSpares returns the places, with the spare ones open if too few are open.
func (ps Places) withSpares(replicas int) Places {
	if ps.enough(replicas) == nil {
		return ps
	}
	all := slices.Clone(ps)
	for i := range all {
		all[i].Open = all[i].Open || all[i].spare
	}
	return all
}

// enough returns an ErrInvalidReplicas if there are fewer open places than
// replicas.
func (ps Places) enough(replicas int) error {
	open := 0
	for _, p := range ps {
		if p.Open {
			open++
		}
	}
	switch most := min(open, MaxReplicas); {
	case most == 0:
		return fmt.Errorf("%w: %d; no node can keep one now", ErrInvalidReplicas, replicas)
	case replicas >= 1 && replicas <= most:
		return nil
	default:
		return fmt.Errorf("%w: %d; %d nodes can keep one, so want 1 to %d", ErrInvalidReplicas, replicas, open, most)
	}
}

// Resize returns the wanted number of replicas and keeps as many of the present ones
// as possible. It gives up replicas on places that are not open first, then those
// that share a rack, then those with the highest load. The preferred leader stays if
// possible.
func (ps Places) Resize(replicas []int32, wanted int) ([]int32, error) {
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

// worse reports whether the replica at i is given up before that at j.
func (ps Places) worse(set []int32, i, j int) bool {
	a, b := ps.openAt(set[i]), ps.openAt(set[j])
	switch {
	case a == nil || b == nil:
		return a == nil && b != nil
	case i == 0 || j == 0:
		return j == 0
	}
	return cmp.Or(cmp.Compare(ps.crowd(set, *a), ps.crowd(set, *b)), cmp.Compare(a.replicas, b.replicas)) > 0
}

// extend adds nodes up to the wanted number.
func (ps Places) extend(replicas []int32, wanted int) ([]int32, error) {
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

// Without returns replicas with another node in place of the given one.
func (ps Places) Without(replicas []int32, node int32) ([]int32, error) {
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

// Balance changes partitions, not more than most, so that replicas are spread over
// racks and every node keeps, and is the preferred leader of, about as many. It changes
// its argument and the places, and returns the partitions that were changed. A change of
// only the preferred leader moves no data and does not count. Each step reduces the
// crowding in racks or the unevenness of the nodes, so Balance ends, and then finds
// nothing more to do.
func (ps Places) Balance(partitions [][]int32, most int) (changed map[int]bool) {
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
// rack with fewer of them, and returns the partition; -1 if there is none.
func (ps Places) spread(partitions [][]int32) int {
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

// even moves one replica to a node that keeps at least two fewer, without crowding
// its rack, and returns the partition; -1 if there is none.
func (ps Places) even(partitions [][]int32) int {
	order := slices.DeleteFunc(slices.Clone(ps), func(p Place) bool { return !p.Open })
	slices.SortStableFunc(order, func(x, y Place) int { return cmp.Compare(y.replicas, x.replicas) })
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
// least two more partitions prefer the present one.
func (ps Places) evenLeaders(partitions [][]int32, i int) bool {
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
		ps.Load(set, -1)
		ps.Load(swapped, 1)
		partitions[i] = swapped
		return true
	}
	return false
}

// replace replaces the node of one replica.
func (ps Places) replace(partitions [][]int32, i, at int, node int32) {
	set := slices.Clone(partitions[i])
	set[at] = node
	ps.Load(partitions[i], -1)
	ps.Load(set, 1)
	partitions[i] = set
}
