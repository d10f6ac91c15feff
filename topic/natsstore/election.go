package natsstore

import (
	"fmt"
	"sync"
	"time"
	_ "unsafe" // for go:linkname
)

// The engine's timers of elections are variables without an option. Those below are the same
// variables: they are set before the first engine of a cluster starts.
// docs/decisions/0071-elections-within-seconds.md

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
var hbInterval time.Duration

//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
var lostQuorumInterval time.Duration

//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
var lostQuorumCheck time.Duration

// electionTimers are the variables, the values that the engine must have given them, and ours.
// A follower that hears nothing from a leader for a time between the first two starts an
// election; a leader that hears nothing from a majority for lostQuorumInterval steps down.
var electionTimers = []struct {
	name        string
	timer       *time.Duration
	theirs, our time.Duration
}{
	{"minElectionTimeout", &minElectionTimeout, 4 * time.Second, 1500 * time.Millisecond},
	{"maxElectionTimeout", &maxElectionTimeout, 9 * time.Second, 3500 * time.Millisecond},
	{"hbInterval", &hbInterval, time.Second, 250 * time.Millisecond},
	{"lostQuorumInterval", &lostQuorumInterval, 10 * time.Second, 3 * time.Second},
	{"lostQuorumCheck", &lostQuorumCheck, 10 * time.Second, 500 * time.Millisecond},
}

// setElectionTimers sets the engine's timers, once for all engines of the process. The linker
// makes a variable of our own, with the value 0, from a name that the engine does not have: so
// the values are checked first, and none is set if one differs.
var setElectionTimers = sync.OnceValue(func() error {
	for _, t := range electionTimers {
		if *t.timer != t.theirs {
			return fmt.Errorf("the engine's %s is %v, not %v: build with the version of github.com/nats-io/nats-server/v2 that Sluice's go.mod names", t.name, *t.timer, t.theirs)
		}
	}
	for _, t := range electionTimers {
		*t.timer = t.our
	}
	return nil
})
