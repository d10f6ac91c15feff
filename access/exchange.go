package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// Told is how long what an instance has told the others counts, if it tells nothing more.
	Told = 3 * time.Second
	// maxTold is the most rates of which an instance tells; of others each instance has an even part.
	maxTold = 500
	// tradeEvery is how often instances tell each other while something is limited, and tradeAfter the least time between two times.
	tradeEvery = 500 * time.Millisecond
	tradeAfter = 100 * time.Millisecond
	tradeTime  = time.Second // bounds a call of the exchange
	// assumed is how many others an instance assumes until it has heard of them, and remembered how long it remembers as many as there
	// were, also while they use nothing.
	assumed    = 3
	remembered = 10 * time.Minute
)

// Exchange carries what the instances that share quotas tell each other. Its methods are not called concurrently.
type Exchange interface {
	// Trade tells the others something, in the place of what this instance told them before, and returns what each of them told
	// last, within Told. Of an instance that tells nothing, nil, the others hear nothing. A message has at most 32 KiB, and may
	// be lost. An error means that this instance may not know what the others told.
	Trade(ctx context.Context, tell []byte) (others [][]byte, err error)
}

// told is what an instance wants of the rates that it uses, by the ids of their entities, as parts of them from 0 to 1.
type told map[string]float64

// id returns what all instances call an entity of a rate. Client ids may be long, and any bytes.
func (u *used) id() string {
	var text []byte
	for _, part := range [...]string{u.rate, u.by.user, u.by.client, u.user, u.client} {
		text = strconv.AppendQuote(text, part)
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// divideRates keeps this instance's parts of the rates that it uses. While nothing is limited it waits.
func (a *Accounts) divideRates(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.buckets.wake:
		}
		if a.tradeWhileUsed(ctx) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tradeTime)
			defer cancel()
			_, _ = a.exchange.Trade(ctx, nil) // the others forget this instance soon in any case
			return nil
		}
	}
}

// tradeWhileUsed trades with the others until this instance uses nothing, or ctx ends, which it reports.
func (a *Accounts) tradeWhileUsed(ctx context.Context) (ended bool) {
	for failed := false; ; {
		wants := a.buckets.wants(time.Now())
		others, err := a.trade(ctx, wants)
		a.buckets.divide(wants, others, err, time.Now())
		if err != nil && !failed && ctx.Err() == nil {
			a.logger.Warn("what other instances use of quotas is not known: each has an even part of them", "error", err)
		}
		if failed = err != nil; len(wants) == 0 {
			return false
		}
		if !lifecycle.Sleep(ctx, nil, tradeAfter) || !lifecycle.Sleep(ctx, a.buckets.wake, tradeEvery-tradeAfter) {
			return true
		}
	}
}

// trade tells the others what this instance wants, and returns what they want.
func (a *Accounts) trade(ctx context.Context, wants told) (others []told, err error) {
	ctx, cancel := context.WithTimeout(ctx, tradeTime)
	defer cancel()
	var text []byte
	if len(wants) > 0 {
		if text, err = json.Marshal(wants); err != nil {
			return nil, err
		}
	}
	texts, err := a.exchange.Trade(ctx, text)
	for _, text := range texts {
		var other told
		if json.Unmarshal(text, &other) == nil {
			others = append(others, other)
		}
	}
	return others, err
}

// wants returns what this instance wants of the rates that it uses, at most maxTold: those of which it wants most.
func (b *buckets) wants(now time.Time) told {
	b.mu.Lock()
	defer b.mu.Unlock()
	var active []*bucket
	for _, of := range b.all {
		if !of.active {
			continue
		}
		of.told = math.Ceil(of.want(now)*1e4) / 1e4
		if of.active = of.told > 0 || now.Sub(of.used) < silent; of.active {
			active = append(active, of)
		}
	}
	if len(active) > maxTold {
		slices.SortFunc(active, func(x, y *bucket) int { return cmp.Or(cmp.Compare(y.told, x.told), cmp.Compare(x.id, y.id)) })
		active = active[:maxTold]
	}
	wants := told{}
	for _, of := range active {
		wants[of.id] = of.told
	}
	return wants
}

// divide takes this instance's parts of the rates that it uses, by what it and the others want. If that is not known for longer
// than Told, it has an even part of each, for as many instances as there were.
func (b *buckets) divide(mine told, others []told, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.heard = now
		if n := len(others); n >= b.others || now.Sub(b.counted) > remembered {
			b.others, b.counted = n, now
		}
	case now.Sub(b.heard) < Told:
		return
	}
	even := b.even()
	for _, of := range b.all {
		want, isTold := mine[of.id]
		switch {
		case !of.active:
		case !isTold || err != nil:
			of.divide(even, even, now)
		default:
			of.divide(shareOf(of.id, want, even, others), even, now)
		}
	}
}

// shareOf returns the part of a rate of an instance that wants so much of it. Others that may have told of more rates want an even
// part of those of which they have not.
func shareOf(id string, want, even float64, others []told) float64 {
	wants := []float64{want}
	for _, other := range others {
		theirs, has := other[id]
		switch {
		case has:
			wants = append(wants, min(max(theirs, 0), 1))
		case len(other) >= maxTold:
			wants = append(wants, even)
		}
	}
	return shares(wants)[0]
}
