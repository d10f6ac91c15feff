package engine

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/clientnet"
	"github.com/sluice-project/sluice/room"
)

// ClientHash returns the hash that binds a ticket to a client: of the IPv4 address, or of
// the /64 of an IPv6 address. It is zero only for an invalid address. It is short and has
// no secret, so it does not hide the address from the ticket's holder.
func ClientHash(addr netip.Addr) [4]byte {
	networks := clientnet.Networks(addr)
	if len(networks) == 0 {
		return [4]byte{}
	}
	sum := sha256.Sum256(append([]byte("sluice room client "), networks[0].Addr().AsSlice()...))
	hash := [4]byte(sum[:])
	if hash == ([4]byte{}) {
		hash[0] = 1
	}
	return hash
}

// joinBound returns how many visitors may enter within a minute from where a visit comes
// from; 0: any number.
func joinBound(s *room.Settings, v room.Visit) int64 {
	switch {
	case s.JoinsPerMinute != 0:
		return max(s.JoinsPerMinute, 0)
	case v.Shared:
		return 0
	}
	return room.DefaultJoinsPerMinute
}

// joinLimiter limits how many visitors enter from one client, and four times as many from a
// whole IPv6 network of 48 bits. It counts in slots of 5 s, and never lets more than the
// limit enter within any minute; a client may have to wait up to 5 s longer than that. It
// is safe for concurrent use.
type joinLimiter struct {
	mu      sync.Mutex
	clients lru[roomClient, joins]
}

// roomClient is a network from which visitors enter a room.
type roomClient struct {
	room    string
	network netip.Prefix
}

// maxClients is how many networks an engine counts, of some 250 bytes each. Beyond
// that it forgets those from which nobody has entered for the longest time.
const maxClients = 100_000

const (
	joinSlot  = 5 * time.Second
	joinSlots = int64(time.Minute/joinSlot) + 1
)

// joins are those of one network.
type joins struct {
	last   int64 // the number of the slot that was counted in last
	counts [joinSlots]int32
}

func newJoinLimiter(clients int) *joinLimiter {
	return &joinLimiter{clients: newLRU[roomClient, joins](clients)}
}

// allow counts one more visitor of a room from an address, if fewer than perMinute entered from it
// within the last minute; otherwise it returns after how long one may. There is no limit
// if perMinute is 0 or the address is invalid.
func (l *joinLimiter) allow(room string, addr netip.Addr, perMinute int64, now time.Time) (retryAfter time.Duration, ok bool) {
	if perMinute <= 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := now.UnixMilli() / joinSlot.Milliseconds()
	networks := clientnet.Networks(addr)
	counted := make([]*joins, len(networks))
	most := perMinute
	for i, network := range networks {
		counted[i] = l.clients.getOrAdd(roomClient{room, network})
		retryAfter = max(retryAfter, counted[i].wait(slot, most, now))
		most = perMinute * clientnet.WideFactor
	}
	if retryAfter > 0 {
		return retryAfter, false
	}
	for _, j := range counted {
		j.counts[slot%joinSlots]++
	}
	return 0, true
}

// wait returns after how long another visitor may enter, of so many within a minute: 0 if at
// once.
func (j *joins) wait(slot, most int64, now time.Time) time.Duration {
	total := j.advance(slot)
	if total < most {
		return 0
	}
	// The first slot after which there are fewer than the limit again.
	for past := joinSlots - 1; past >= 0; past-- {
		total -= int64(j.counts[(slot-past)%joinSlots])
		if total < most {
			free := time.UnixMilli((slot - past + joinSlots) * joinSlot.Milliseconds())
			return free.Sub(now)
		}
	}
	return time.Minute // not reached: without all slots the total is 0
}

// advance forgets the slots that are over, and returns the sum of the others. If the clock
// goes back by more than all slots, counting starts again.
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

// LimitError reports that too many visitors came from one client address.
type LimitError struct {
	// RetryAfter is when the next may come.
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("too many visitors from this address: the next may come in %v", e.RetryAfter)
}
