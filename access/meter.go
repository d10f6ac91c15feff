package access

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
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
		if q.Tenant != "" {
			continue
		}
		if by[q.User] == nil {
			by[q.User] = map[string]map[string]float64{}
		}
		by[q.User][q.Client] = q.Rates
	}
	return by
}

// tenantRates are the requests a second of tenants, by name. They do not change.
type tenantRates map[string]float64

func newTenantRates(all []Quota) tenantRates {
	by := tenantRates{}
	for _, q := range all {
		if q.Tenant != "" {
			by[q.Tenant] = q.Rates[RequestRate]
		}
	}
	return by
}

// find returns the rate of a tenant; 0 means that there is no quota, as for "".
func (r tenantRates) find(tenant string) float64 {
	if tenant == "" {
		return 0
	}
	return cmp.Or(r[tenant], r[DefaultEntity])
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
	b := m.among.bucket(m.of, now)
	defer m.among.tell(b)
	return b.spend(bytes, m.rate, now)
}

// Allowance returns how many bytes an answer may have now; 0 means that it must be empty.
func (m *Meter) Allowance() int64 {
	m.among.mu.Lock()
	defer m.among.mu.Unlock()
	now := time.Now()
	b := m.among.bucket(m.of, now)
	defer m.among.tell(b)
	return b.allowance(m.rate, now)
}

// TooManyError says that a request comes too early.
type TooManyError struct {
	// Of is who sends too many, and Quota what bounds them.
	Of, Quota string
	// Wait is how long they have to wait.
	Wait time.Duration
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%s sends more requests in a second than %s allows", e.Of, e.Quota)
}

// Request counts a request that somebody sends over HTTP, against what each account may send and, of an account that is limited to
// exactly one tenant, against the quota of that tenant. It returns a *TooManyError, and has counted nothing, if they have to wait.
// The admin token of the settings never has to.
func (a *Accounts) Request(p *Principal) error {
	tenant := p.onlyTenant()
	perTenant := a.known.Load().tenantRates.find(tenant)
	if p.Name == AdminName || a.perSecond == 0 && perTenant == 0 {
		return nil
	}
	a.buckets.mu.Lock()
	defer a.buckets.mu.Unlock()
	now := time.Now()
	account, all := used{rate: "requests", user: p.Name}, used{rate: RequestRate, user: tenant}
	if wait := a.buckets.due(account, a.perSecond, now); wait > 0 {
		return &TooManyError{p.String(), "access.requests_per_second", wait}
	}
	if wait := a.buckets.due(all, perTenant, now); wait > 0 {
		return &TooManyError{"the tenant " + tenant, "its quota " + RequestRate, wait}
	}
	a.buckets.spendOne(account, a.perSecond, now)
	a.buckets.spendOne(all, perTenant, now)
	return nil
}

// buckets are those of all entities that use something, each with this instance's part of their rate.
type buckets struct {
	mu    sync.Mutex
	all   map[used]*bucket
	swept time.Time

	// wake is signaled if the other instances are to be told something at once; nil: there are none.
	wake lifecycle.Signal
	// others is how many instances there are besides this one, as counted then. The last time that they were heard is heard.
	others         int
	counted, heard time.Time
}

// bucket returns the bucket of an entity, which is to be used. b.mu is held.
func (b *buckets) bucket(of used, now time.Time) *bucket {
	found := b.find(of, now)
	if b.wake != nil {
		if found.used = now; !found.active {
			found.begin(b.even(), now)
			b.wake.Wake()
		}
	}
	return found
}

// find returns the bucket of an entity. b.mu is held.
func (b *buckets) find(of used, now time.Time) *bucket {
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
	of.client = strings.Clone(of.client)
	made := &bucket{part: 1, least: 1}
	if b.wake != nil {
		made.id = of.id()
	}
	b.all[of] = made
	return made
}

// even returns the part of a rate that an instance has if nothing else is known. b.mu is held.
func (b *buckets) even() float64 { return 1 / float64(1+b.others) }

// tell makes the others know soon, once in a span, that somebody was held who may have more of the rate than this instance has.
// b.mu is held.
func (b *buckets) tell(of *bucket) {
	if b.wake != nil && of.use.held && of.told < 1 && !of.use.woke {
		of.use.woke = true
		b.wake.Wake()
	}
}

// due returns how long it lasts until an entity may spend one of a rate; of rate 0 it always may. b.mu is held.
func (b *buckets) due(of used, rate float64, now time.Time) time.Duration {
	if rate == 0 {
		return 0
	}
	found := b.bucket(of, now)
	defer b.tell(found)
	return found.due(rate, now)
}

// spendOne counts one of a rate; of rate 0 nothing is counted. b.mu is held.
func (b *buckets) spendOne(of used, rate float64, now time.Time) {
	if rate > 0 {
		b.bucket(of, now).spend(1, rate, now)
	}
}
