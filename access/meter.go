package access

import (
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// maxBuckets bounds the entities that are told apart. Clients choose their ids, so there can be any number of them; those
	// for which there is no place share a bucket for each rate, which allows to all what a quota allows to one.
	maxBuckets = 10_000
	// sweepEvery is the least time between two searches for buckets that are not needed.
	sweepEvery = time.Second
)

// used is whose bytes are counted together: those of a rate, by the entity whose quota it is, with names in the place of
// DefaultEntity.
type used struct {
	rate         string
	by           entity
	user, client string
}

// entity is whom a quota is for.
type entity struct{ user, client string }

// quotas are the rates of entities, by their users and then by their client ids. They do not change.
type quotas map[string]map[string]map[string]float64

func newQuotas(all []Quota) quotas {
	by := quotas{}
	for _, q := range all {
		if by[q.User] == nil {
			by[q.User] = map[string]map[string]float64{}
		}
		by[q.User][q.Client] = q.Rates
	}
	return by
}

// find returns the rate of a user with a client id, by Kafka's order: what names the user comes before what does not, and then
// what names the client id. Bytes are counted together for each user and client id that the entity names or stands for. A
// rate of 0 means that there is no quota.
func (q quotas) find(rate, user, client string) (used, float64) {
	for _, byUser := range [...]string{user, DefaultEntity, ""} {
		own := q[byUser]
		if own == nil {
			continue
		}
		for _, byClient := range [...]string{client, DefaultEntity, ""} {
			found := own[byClient][rate]
			if found == 0 {
				continue
			}
			of := used{rate: rate, by: entity{byUser, byClient}}
			if byUser != "" {
				of.user = user
			}
			if byClient != "" {
				of.client = client
			}
			return of, found
		}
	}
	return used{}, 0
}

// unnamed is the id of clients that give none, which no quota can name: DefaultEntity is for them.
const unnamed = "\x00"

// Meter counts the bytes of somebody by a client id, against a quota. It is safe for concurrent use.
type Meter struct {
	of    used
	rate  float64
	among *buckets
}

// Meter returns what counts bytes of a rate; nil if there is no quota for them, as without accounts.
func (a *Accounts) Meter(p *Principal, rate, client string) *Meter {
	all := a.known.Load().limits
	if len(all) == 0 {
		return nil
	}
	if client == "" {
		client = unnamed
	}
	of, found := all.find(rate, p.Name, client[:min(len(client), maxName)])
	if found == 0 {
		return nil
	}
	return &Meter{of, found, &a.buckets}
}

// Spend counts bytes that were sent or got, and returns how long the client has to wait before it may go on, at most
// MaxThrottle.
func (m *Meter) Spend(bytes int64) time.Duration {
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	now := time.Now()
	return m.among.bucket(m.of, now).spend(bytes, m.rate, now)
}

// Allowance returns how many bytes an answer may have now; 0 means that it must be empty.
func (m *Meter) Allowance() int64 {
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	now := time.Now()
	return m.among.bucket(m.of, now).allowance(m.rate, now)
}

// Request counts a request that somebody sends over HTTP. It returns how long they have to wait before they may send it, 0 if
// they have not. The admin token of the settings never has.
func (a *Accounts) Request(p *Principal) (wait time.Duration) {
	if a.perSecond == 0 || p.Name == AdminName {
		return 0
	}
	a.buckets.mu.Lock()
	defer a.buckets.mu.Unlock()
	now := time.Now()
	return a.buckets.bucket(used{rate: "requests", user: p.Name}, now).take(a.perSecond, now)
}

// buckets are those of all entities that use something. Quotas hold for each instance by itself, as Kafka's do for each
// broker.
type buckets struct {
	mu    sync.Mutex
	all   map[used]*bucket
	swept time.Time
}

// bucket returns the bucket of an entity. b.mu is held.
func (b *buckets) bucket(of used, now time.Time) *bucket {
	if found := b.all[of]; found != nil {
		return found
	}
	if len(b.all) >= maxBuckets && now.Sub(b.swept) >= sweepEvery {
		b.swept = now
		maps.DeleteFunc(b.all, func(_ used, of *bucket) bool { return of.rested(now) })
	}
	if len(b.all) >= maxBuckets {
		of = used{rate: of.rate}
		if found := b.all[of]; found != nil {
			return found
		}
	}
	if b.all == nil {
		b.all = map[used]*bucket{}
	}
	made := &bucket{}
	b.all[used{of.rate, of.by, of.user, strings.Clone(of.client)}] = made
	return made
}
