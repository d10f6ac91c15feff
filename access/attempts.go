package access

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/clientnet"
)

// The bound on failed attempts of one client: Burst at once, and then one in each Pause.
const (
	Burst = 10
	Pause = time.Second
)

// Attempts bounds failed attempts to show who one is, for each client: an IPv4 address, or an IPv6 network of 64 bits.
// Clients share a fixed number of places, so that its memory has a bound; two at the same place share the bound too.
type Attempts struct {
	seed maphash.Seed
	mu   sync.Mutex
	full [1024]time.Time // when the place has all its attempts again
}

// NewAttempts returns the attempts of one edge.
func NewAttempts() *Attempts { return &Attempts{seed: maphash.MakeSeed()} }

// Failed counts a failed attempt. It returns how long the client has to wait before its next attempt is answered, 0
// if this one is.
func (a *Attempts) Failed(from netip.Addr) (wait time.Duration) {
	var client netip.Prefix
	if networks := clientnet.Networks(from); len(networks) > 0 {
		client = networks[0]
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	full := &a.full[maphash.Comparable(a.seed, client)%uint64(len(a.full))]
	next := now
	if full.After(now) {
		next = *full
	}
	next = next.Add(Pause)
	if over := next.Sub(now) - Burst*Pause; over > 0 {
		return over
	}
	*full = next
	return 0
}
