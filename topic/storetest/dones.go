package storetest

import "sync"

// dones calls the dones of a log's appends in their order, from a goroutine that is
// there while there are any.
type dones struct {
	mu      sync.Mutex
	waiting []func()
	calling bool
}

func (d *dones) add(done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, done)
	if !d.calling {
		d.calling = true
		go d.call()
	}
}

func (d *dones) call() {
	for {
		d.mu.Lock()
		if len(d.waiting) == 0 {
			d.calling = false
			d.mu.Unlock()
			return
		}
		done := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.mu.Unlock()
		done()
	}
}
