package ranks

// Heap is a heap. An item knows its place in it, counted from 1; 0 means that it is not in it.
// Operations cost the logarithm of its length.
type Heap[T comparable] struct {
	items []T
	less  func(a, b T) bool
	at    func(T) *int
}

// New returns an empty heap. Less orders the items, and at returns where an item keeps its place.
func New[T comparable](less func(a, b T) bool, at func(T) *int) Heap[T] {
	return Heap[T]{less: less, at: at}
}

// Len returns how many items there are.
func (r *Heap[T]) Len() int { return len(r.items) }

// Items returns the items in no order. The caller must not change them.
func (r *Heap[T]) Items() []T { return r.items }

// First returns the least item, or the zero value.
func (r *Heap[T]) First() (none T) {
	if len(r.items) > 0 {
		return r.items[0]
	}
	return none
}

// Second returns the least item but one, or the zero value.
func (r *Heap[T]) Second() (none T) {
	switch {
	case len(r.items) < 2:
		return none
	case len(r.items) > 2 && r.less(r.items[2], r.items[1]):
		return r.items[2]
	}
	return r.items[1]
}

// Set adds an item, or moves it to where it belongs now.
func (r *Heap[T]) Set(item T) {
	at := r.at(item)
	if *at == 0 {
		r.items = append(r.items, item)
		*at = len(r.items)
	}
	r.up(*at - 1)
	r.down(*at - 1)
}

// SetIf is Set or Remove.
func (r *Heap[T]) SetIf(item T, in bool) {
	if in {
		r.Set(item)
	} else {
		r.Remove(item)
	}
}

// Remove removes an item, if it is in the heap.
func (r *Heap[T]) Remove(item T) {
	i, last := *r.at(item)-1, len(r.items)-1
	if i < 0 {
		return
	}
	r.swap(i, last)
	var none T
	r.items[last] = none
	if r.items = r.items[:last]; i < last {
		moved := r.items[i]
		r.up(i)
		r.down(*r.at(moved) - 1)
	}
	*r.at(item) = 0
}

func (r *Heap[T]) push(item T) {
	r.items = append(r.items, item)
	r.up(len(r.items) - 1)
}

func (r *Heap[T]) pop() T {
	item, last := r.items[0], len(r.items)-1
	r.swap(0, last)
	r.items = r.items[:last]
	r.down(0)
	return item
}

func (r *Heap[T]) swap(i, j int) {
	r.items[i], r.items[j] = r.items[j], r.items[i]
	if r.at != nil {
		*r.at(r.items[i]), *r.at(r.items[j]) = i+1, j+1
	}
}

func (r *Heap[T]) up(i int) {
	for ; i > 0 && r.less(r.items[i], r.items[(i-1)/2]); i = (i - 1) / 2 {
		r.swap(i, (i-1)/2)
	}
}

func (r *Heap[T]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.items); child++ {
			if r.less(r.items[child], r.items[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.swap(i, least)
		i = least
	}
}

// Walk returns the items of a heap in order.
type Walk[T comparable] struct {
	items []T
	front Heap[int] // of those that were not returned, the ones whose parent was
}

// Walk begins at the least item. The heap must not change until it ends.
func (r *Heap[T]) Walk() *Walk[T] {
	items, less := r.items, r.less
	w := &Walk[T]{items: items, front: Heap[int]{less: func(a, b int) bool { return less(items[a], items[b]) }}}
	w.reach(0)
	return w
}

func (w *Walk[T]) reach(i int) {
	if i < len(w.items) {
		w.front.push(i)
	}
}

// Next returns the next item, or the zero value after the last.
func (w *Walk[T]) Next() (none T) {
	if len(w.front.items) == 0 {
		return none
	}
	i := w.front.pop()
	w.reach(2*i + 1)
	w.reach(2*i + 2)
	return w.items[i]
}
