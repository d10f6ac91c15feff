package natsstore

import "time"

// resendAfter is how long an append waits before it is sent again; then it waits
// twice as long, and so on, until Options.Timeout.
const resendAfter = time.Second

// dueAgain tells whether it is time to send an append again.
func (u *underway) dueAgain(now time.Time) bool {
	return now.Sub(u.entered) >= resendAfter<<u.sent-resendAfter
}

// resend sends all that is under way again, if the append that waits longest is due.
// The engine drops, without a word, what comes in the moment when a stream gets its
// first other replicas, or another leader; whoever appends would wait until the
// timeout. Of an append that was sent twice the log takes one, as its sequence says
// where it belongs; the other is refused, and the log is asked whose entry it has:
// see dispute.
func (l *log) resend(now time.Time) {
	l.send.Lock()
	defer l.send.Unlock()
	l.mu.Lock() // nothing is answered meanwhile, so the data stay
	defer l.mu.Unlock()
	if l.state != nil || l.queue.empty() || !l.queue.head().dueAgain(now) {
		return
	}
	for number := l.queue.first; number < l.queue.next(); number++ {
		item := l.queue.at(number)
		if item.answered || !item.follows {
			continue
		}
		item.sent++
		if err := l.publish(now, number, item.entry); err != nil {
			return // what was sent before may be answered yet
		}
	}
}

// nextLook is when the append that waits longest is looked at again.
func (l *log) nextLook(left time.Duration) time.Duration {
	if l.store.cluster == nil {
		return left
	}
	return min(left, resendAfter)
}
