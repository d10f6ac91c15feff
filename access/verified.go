package access

import "sync"

// maxVerified is the most JWTs whose signature is remembered.
const maxVerified = 4096

// verified remembers whom JWTs make known, by their hashes, so that a program that sends one with each request does not
// have its signature verified each time. When it is full it forgets all.
type verified struct {
	mu  sync.RWMutex
	who map[hash]*Principal
}

// get returns whom a JWT made known, if that still holds.
func (v *verified) get(sum hash) *Principal {
	v.mu.RLock()
	p := v.who[sum]
	v.mu.RUnlock()
	if p == nil || !p.standing() {
		return nil
	}
	return p
}

func (v *verified) put(sum hash, p *Principal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.who == nil || len(v.who) >= maxVerified {
		v.who = map[hash]*Principal{}
	}
	v.who[sum] = p
}

// jwt returns whom a JWT makes known, whose hash is sum.
func (a *Accounts) jwt(text string, sum hash) (*Principal, error) {
	if p := a.jwts.cache.get(sum); p != nil {
		return p, nil
	}
	known, err := a.jwts.verify(text)
	if err != nil {
		return nil, err
	}
	p := a.granted(known.name, known.values, known.expires, known.stands)
	a.jwts.cache.put(sum, p)
	return p, nil
}
