package access

import "time"

// The bounds of what a quota does. Together they keep the bytes of any 10 seconds within 5 % of the rate, and one request or batch.
const (
	// MaxThrottle is the longest that a client is told to wait: as long as the window in which Kafka's broker measures.
	MaxThrottle = 10 * time.Second
	// burst is how much of its whole rate an entity that was silent may use at once at an instance, without a wait.
	burst = 100 * time.Millisecond
	// answered is how much of its rate one answer may have, and answering how much may be unpaid before answers are empty.
	// The second is more, so that clients that are far away get records too.
	answered  = 200 * time.Millisecond
	answering = 400 * time.Millisecond
	// maxDebt is how much of its rate an entity can have used beyond it: what is more is forgotten.
	maxDebt = time.Minute
)

// bucket is what an entity has used beyond its rate, in bytes at a time; less than 0 is what it may use at once.
type bucket struct {
	debt float64
	at   time.Time // zero: nothing was ever used
	rate float64   // the last one, in bytes a second
	part float64   // how much of it is this instance's
	// least is how much of the rate bounds bursts and waits: part, or an even part if that is more.
	least float64

	// For what this instance tells the others, if there are any; see want.
	id          string
	active      bool      // it is told
	used        time.Time // for the last time
	told        float64
	use, before use
}

// settle pays the debt by the time that has passed at this instance's part of a rate.
func (b *bucket) settle(rate float64, now time.Time) {
	if b.rate = rate; rate == 0 {
		return // nothing was ever used
	}
	full := rate * burst.Seconds()
	if b.at.IsZero() {
		b.at, b.debt = now, -full
		return
	}
	flow, passed := rate*b.part, now.Sub(b.at).Seconds()
	if free := passed - max(b.debt+full/2, 0)/flow; free > 0 {
		b.use.free += min(free, now.Sub(b.use.from).Seconds())
	}
	b.debt = max(b.debt-flow*passed, -full)
	b.at = now
}

// spend counts bytes, and returns how long to wait until the debt is paid, at most MaxThrottle.
func (b *bucket) spend(bytes int64, rate float64, now time.Time) time.Duration {
	b.settle(rate, now)
	b.use.wanted += float64(bytes)
	b.debt = min(b.debt+float64(bytes), rate*maxDebt.Seconds())
	seconds := min(max(b.debt/b.pace(), 0), MaxThrottle.Seconds())
	b.use.held = b.use.held || seconds > 0
	return time.Duration(seconds * float64(time.Second))
}

// allowance returns how many bytes an answer may have; 0 means that it must be empty.
func (b *bucket) allowance(rate float64, now time.Time) int64 {
	b.settle(rate, now)
	left := b.pace()*answering.Seconds() - b.debt
	if left <= 0 {
		b.use.held = true
		return 0
	}
	return int64(min(max(min(left, b.pace()*answered.Seconds()), 1), 1<<50))
}

// due returns how long it lasts until one more may be spent: 0, unless as many are to be made good as there are answers for.
func (b *bucket) due(rate float64, now time.Time) (wait time.Duration) {
	if b.allowance(rate, now) > 0 {
		return 0
	}
	b.use.wanted++
	return max(1, time.Duration(b.debt/b.pace()*float64(time.Second))-answering)
}

// rested reports whether the bucket is as that of an entity that was silent.
func (b *bucket) rested(now time.Time) bool {
	b.settle(b.rate, now)
	return b.debt <= -b.rate*burst.Seconds()
}
