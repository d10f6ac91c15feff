package audit

import (
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/clientnet"
)

// The bound on refusals and failed authentications of one address and name.
const (
	// Burst is how many are entries of their own within a Window.
	Burst  = 10
	Window = time.Minute
	// MaxSenders is how many addresses and names are told apart within a Window; all others count together.
	MaxSenders = 1024
)

// sender is an IPv4 address or an IPv6 network of 64 bits, with the name of a token.
type sender struct {
	network netip.Prefix
	token   string
}

func senderOf(e Entry) sender {
	address, _ := netip.ParseAddr(e.Address) // those without one count together
	s := sender{token: e.Token}
	if networks := clientnet.Networks(address); len(networks) > 0 {
		s.network = networks[0]
	}
	return s
}

// repeats counts refusals.
type repeats struct {
	mu   sync.Mutex
	seen map[sender]*repeated
}

type repeated struct {
	count int
	last  Entry
}

// first reports whether a refusal is an entry of its own. Others are counted.
func (r *repeats) first(e Entry) bool {
	from := senderOf(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.seen[from]
	if of == nil && len(r.seen) >= MaxSenders {
		from = sender{}
		of = r.seen[from]
	}
	if of == nil {
		of = &repeated{}
		r.seen[from] = of
	}
	of.count++
	of.last = e
	return of.count <= Burst
}

// take ends the window. It returns an entry with the count for each sender with further refusals.
func (r *repeats) take() []Entry {
	r.mu.Lock()
	seen := r.seen
	r.seen = map[sender]*repeated{}
	r.mu.Unlock()
	var entries []Entry
	for from, of := range seen {
		if of.count <= Burst {
			continue
		}
		of.last.Count = of.count - Burst
		if from == (sender{}) { // many senders
			of.last.Address, of.last.Token, of.last.TokenID = "", "", ""
		}
		entries = append(entries, of.last)
	}
	return entries
}
