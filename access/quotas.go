package access

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// MaxQuotas is the most entities that have quotas.
const MaxQuotas = 1000

// The rates of quotas, by Kafka's names, in bytes a second.
const (
	// ProducerRate bounds what clients send by Produce requests.
	ProducerRate = "producer_byte_rate"
	// ConsumerRate bounds the records that clients get.
	ConsumerRate = "consumer_byte_rate"
)

// The quotas of what a user has made and what still exists. See Most.
const (
	MaxTopics     = "max_topics"
	MaxPartitions = "max_partitions"
	MaxGroups     = "max_groups"
	MaxRooms      = "max_rooms"
)

// RequestRate bounds the requests over HTTP, in a second, of all accounts of a tenant together. See Request.
const RequestRate = "requests_per_second"

// DefaultEntity in a Quota stands for each user, client id or tenant that has no quota of its own.
const DefaultEntity = "<default>"

// Quota is the quotas of an entity: a user, a client id, a user with a client id, or a tenant.
type Quota struct {
	// User is the name of a Principal, or DefaultEntity; "" for each.
	User string `json:"user,omitempty"`
	// Client is what clients call themselves, or DefaultEntity; "" for each.
	Client string `json:"client_id,omitempty"`
	// Tenant is a tenant, or DefaultEntity, without a user and a client id; "" for none.
	Tenant string `json:"tenant,omitempty"`
	// Rates are the values of quotas, by their names above. In a change, 0 removes one, and others stay.
	Rates map[string]float64 `json:"rates"`
}

// quotaOf says which entities have a quota.
type quotaOf struct {
	fits func(*Quota) bool
	want string
	unit string
}

var (
	ofClients = quotaOf{func(q *Quota) bool { return q.Tenant == "" }, "a user, a client-id, or both", "bytes a second"}
	ofUsers   = quotaOf{func(q *Quota) bool { return q.Tenant == "" && q.Client == "" }, "a user without a client-id", "what exists"}
	ofTenants = quotaOf{func(q *Quota) bool { return q.Tenant != "" }, "a tenant", "requests a second"}
)

// quotaKeys are all quotas, by name.
var quotaKeys = map[string]quotaOf{
	ProducerRate: ofClients, ConsumerRate: ofClients,
	MaxTopics: ofUsers, MaxPartitions: ofUsers, MaxGroups: ofUsers, MaxRooms: ofUsers,
	RequestRate: ofTenants,
}

// sameEntity reports whether two quotas are of one entity.
func (q *Quota) sameEntity(other *Quota) bool {
	return q.User == other.User && q.Client == other.Client && q.Tenant == other.Tenant
}

// check returns an *InvalidError if a change cannot be.
func (q *Quota) check() error {
	named := [...]struct{ field, name string }{{"user", q.User}, {"client-id", q.Client}, {"tenant", q.Tenant}}
	for _, of := range named {
		if of.name != "" && !printable(of.name) {
			return &InvalidError{of.field, fmt.Sprintf("want 1 to %d bytes that can be printed", maxName)}
		}
	}
	if strings.HasSuffix(q.Tenant, "*") {
		return &InvalidError{"tenant", "want the whole name of a tenant, not a prefix"}
	}
	if (q.User == "" && q.Client == "") == (q.Tenant == "") {
		return &InvalidError{"entity", "want a user, a client-id, or both; or a tenant alone"}
	}
	for key, value := range q.Rates {
		of, known := quotaKeys[key]
		switch {
		case key == "request_percentage":
			return &InvalidError{key, "it is a share of the threads of Kafka's broker, which this server does not have: want " + ProducerRate + " or " + ConsumerRate}
		case !known:
			return &InvalidError{"key", fmt.Sprintf("%.40q: want one of %s", key, strings.Join(slices.Sorted(maps.Keys(quotaKeys)), ", "))}
		case !of.fits(q):
			return &InvalidError{key, "it is a quota of " + of.want}
		case !(value >= 0 && value <= math.MaxInt64) || value != math.Trunc(value):
			return &InvalidError{key, fmt.Sprintf("%v: want a whole number of %s, at least 1", value, of.unit)}
		}
	}
	return nil
}

// Most returns how many topics, partitions, groups or rooms a user may have made, by MaxTopics and the others; 0 means any
// number. The admin token of the settings may always have made any number, and so may "", who is nobody. The quota is as of the last
// look at the store, up to Follow ago.
func (a *Accounts) Most(user, quota string) int {
	if a == nil || user == "" || user == AdminName {
		return 0
	}
	_, most := a.known.Load().limits.find(quota, user, "")
	return int(min(most, math.MaxInt32))
}

// Quotas returns all quotas, in the order of their creation. Another instance may have changed them up to Follow ago.
func (a *Accounts) Quotas() []Quota { return slices.Clone(a.known.Load().Quotas) }

// ChangeQuotas sets and removes values, those of one change all or not at all, and returns an *InvalidError for each change
// that cannot be. An entity without values has no quota. With an error of its own, such as ErrFull or one of the store,
// nothing has changed. With validateOnly nothing changes, and the outcome is the same.
func (a *Accounts) ChangeQuotas(ctx context.Context, changes []Quota, validateOnly bool) (refused []error, err error) {
	refused = make([]error, len(changes))
	for i := range changes {
		refused[i] = changes[i].check()
	}
	err = a.change(ctx, func(d *document) error {
		changed := false
		for i := range changes {
			if refused[i] == nil {
				changed = d.changeQuota(&changes[i]) || changed
			}
		}
		switch {
		case !changed:
			return errNothing
		case validateOnly:
			if _, err := d.encode(); err != nil {
				return err
			}
			return errNothing
		}
		return nil
	})
	return refused, err
}

// changeQuota changes the values of an entity, and reports whether they are others now.
func (d *document) changeQuota(change *Quota) bool {
	at := slices.IndexFunc(d.Quotas, func(q Quota) bool { return q.sameEntity(change) })
	var before map[string]float64
	if at >= 0 {
		before = d.Quotas[at].Rates
	}
	rates := map[string]float64{}
	maps.Copy(rates, before)
	for key, rate := range change.Rates {
		if rates[key] = rate; rate == 0 {
			delete(rates, key)
		}
	}
	switch {
	case maps.Equal(rates, before):
		return false
	case at < 0:
		d.Quotas = append(d.Quotas, Quota{User: change.User, Client: change.Client, Tenant: change.Tenant, Rates: rates})
	case len(rates) == 0:
		d.Quotas = slices.Delete(d.Quotas, at, at+1)
	default:
		d.Quotas[at].Rates = rates
	}
	return true
}
