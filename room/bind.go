package room

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// clientPrefix is what counts as one client: an IPv4 address, or the /64 of an IPv6
// address, which is one subscriber's. It is invalid for an invalid address.
func clientPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // of an invalid address
	}
	return prefix
}

// ClientHash is what a ticket is bound to by: a hash of the IPv4 address, or of the
// /64 of an IPv6 address. It is zero for an invalid address, and never otherwise. It is
// short and without a secret: it does not hide the address from who has the ticket.
func ClientHash(addr netip.Addr) [4]byte {
	prefix := clientPrefix(addr)
	if !prefix.IsValid() {
		return [4]byte{}
	}
	sum := sha256.Sum256(append([]byte("sluice room client "), prefix.Addr().AsSlice()...))
	hash := [4]byte(sum[:])
	if hash == ([4]byte{}) {
		hash[0] = 1
	}
	return hash
}

// joinLimiter limits how many visitors enter from one client. It counts in slots of
// 5 s, and never lets more than the limit enter within any minute; one whose minute is
// over may have to wait for 5 s more. Many goroutines may use it.
type joinLimiter struct {
	mu      sync.Mutex
	clients lru[netip.Prefix, joins]
}

// maxClients is how many clients a joinLimiter counts, of some 250 bytes each. Of
// more it forgets those that did not enter for the longest time.
const maxClients = 100_000

const (
	joinSlot  = 5 * time.Second
	joinSlots = int64(time.Minute/joinSlot) + 1
)

// joins are those of one client.
type joins struct {
	last   int64 // the number of the slot that was counted in last
	counts [joinSlots]int32
}

func newJoinLimiter(clients int) *joinLimiter {
	return &joinLimiter{clients: newLRU[netip.Prefix, joins](clients)}
}

// allow counts one more from an address, if fewer than perMinute entered from it within
// the last minute; otherwise it returns after what time one may. No limit, if perMinute
// is 0 or the address is invalid.
func (l *joinLimiter) allow(addr netip.Addr, perMinute int64, now time.Time) (retryAfter time.Duration, ok bool) {
	client := clientPrefix(addr)
	if perMinute <= 0 || !client.IsValid() {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.clients.getOrAdd(client)
	slot := now.UnixMilli() / joinSlot.Milliseconds()
	total := j.advance(slot)
	if total < perMinute {
		j.counts[slot%joinSlots]++
		return 0, true
	}
	// The first slot after which there are fewer than the limit again.
	for past := joinSlots - 1; past >= 0; past-- {
		total -= int64(j.counts[(slot-past)%joinSlots])
		if total < perMinute {
			free := time.UnixMilli((slot - past + joinSlots) * joinSlot.Milliseconds())
			return free.Sub(now), false
		}
	}
	return time.Minute, false // not reached: without all slots the total is 0
}

// advance forgets the slots that are over, and returns the sum of the others. A clock
// that goes back by more than all slots starts again.
func (j *joins) advance(slot int64) (total int64) {
	if slot >= j.last+joinSlots || slot <= j.last-joinSlots {
		*j = joins{last: slot}
	}
	for ; j.last < slot; j.last++ {
		j.counts[(j.last+1)%joinSlots] = 0
	}
	for _, n := range j.counts {
		total += int64(n)
	}
	return total
}
