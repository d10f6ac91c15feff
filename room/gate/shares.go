package gate

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// MaxPassClients is the highest [Site].PassClients.
	MaxPassClients = 100
	// shareTime: an address that a pass was used from counts until it was not for this long, and
	// at most for as long again.
	shareTime = 30 * time.Second
	// maxShared is the most visitors whose addresses are remembered. With more, some are
	// forgotten sooner.
	maxShared = 32_768
)

// shares are the addresses that visitors inside came from lately. Those of a time are forgotten
// together: a generation lasts for shareTime, and the one before it is kept.
type shares struct {
	mu         sync.Mutex
	young, old map[holder][]netip.Prefix
	began      time.Time
}

// holder is a visitor inside.
type holder struct {
	room    string
	visitor int64
}

// use records that a visitor's pass is used from an address, unless that would be one more than
// most; then it returns false.
func (s *shares) use(of holder, client netip.Addr, most int, now time.Time) bool {
	network := networkOf(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.began) >= 2*shareTime {
		s.young = nil
	}
	if now.Sub(s.began) >= shareTime || len(s.young) >= maxShared/2 {
		s.old, s.young, s.began = s.young, map[holder][]netip.Prefix{}, now
	}
	young := s.young[of]
	if slices.Contains(young, network) {
		return true
	}
	if old := s.old[of]; !slices.Contains(old, network) {
		others := len(young)
		for _, other := range old {
			if !slices.Contains(young, other) {
				others++
			}
		}
		if others >= most {
			return false
		}
	}
	s.young[of] = append(young, network)
	return true
}

// networkOf returns the address, or the IPv6 network of 64 bits that one client has: it changes
// its address in there.
func networkOf(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() && !client.Is4In6() {
		bits = 64
	}
	network, err := client.Prefix(bits)
	if err != nil { // the address is not known
		return netip.Prefix{}
	}
	return network
}
