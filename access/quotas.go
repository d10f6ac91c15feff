package access

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
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

// DefaultEntity in a Quota stands for each user, or each client id, that has no quota of its own.
const DefaultEntity = "<default>"

// Quota bounds the rates of an entity: of a user, of a client id, or of a user with a client id.
type Quota struct {
	// User is the name of a Principal, or DefaultEntity; "" for each.
	User string `json:"user,omitempty"`
	// Client is what clients call themselves, or DefaultEntity; "" for each.
	Client string `json:"client_id,omitempty"`
	// Rates are in bytes a second, by ProducerRate and ConsumerRate. In a change, 0 removes a rate, and others stay.
	Rates map[string]float64 `json:"rates"`
}

// sameEntity reports whether two quotas are of one entity.
func (q *Quota) sameEntity(other *Quota) bool {
	return q.User == other.User && q.Client == other.Client
}

// check returns an *InvalidError if a change cannot be.
func (q *Quota) check() error {
	switch {
	case q.User == "" && q.Client == "":
		return &InvalidError{"entity", "want a user, a client-id, or both"}
	case q.User != "" && !printable(q.User):
		return &InvalidError{"user", fmt.Sprintf("want 1 to %d bytes that can be printed", maxName)}
	case q.Client != "" && !printable(q.Client):
		return &InvalidError{"client-id", fmt.Sprintf("want 1 to %d bytes that can be printed", maxName)}
	}
	for key, rate := range q.Rates {
		switch {
		case key == "request_percentage":
			return &InvalidError{key, "it is a share of the threads of Kafka's broker, which this server does not have: want " + ProducerRate + " or " + ConsumerRate}
		case key != ProducerRate && key != ConsumerRate:
			return &InvalidError{"key", fmt.Sprintf("%.40q: want %s or %s", key, ProducerRate, ConsumerRate)}
		case !(rate >= 0 && rate <= math.MaxInt64) || rate != math.Trunc(rate):
			return &InvalidError{key, fmt.Sprintf("%v: want a whole number of bytes a second, at least 1", rate)}
		}
	}
	return nil
}

// Quotas returns all quotas, in the order of their creation. Another instance may have changed them up to Follow ago.
func (a *Accounts) Quotas() []Quota { return slices.Clone(a.known.Load().Quotas) }

// ChangeQuotas sets and removes rates, those of one change all or not at all, and returns an *InvalidError for each change
// that cannot be. An entity without rates has no quota. With an error of its own, such as ErrFull or one of the store,
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

// changeQuota changes the rates of an entity, and reports whether they are others now.
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
		d.Quotas = append(d.Quotas, Quota{User: change.User, Client: change.Client, Rates: rates})
	case len(rates) == 0:
		d.Quotas = slices.Delete(d.Quotas, at, at+1)
	default:
		d.Quotas[at].Rates = rates
	}
	return true
}
