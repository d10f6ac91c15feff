package group

import (
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/sluice-project/sluice/topic/group/assign"
)

const (
	// maxSubscribed bounds the topics that a member names.
	maxSubscribed = 10_000
	// maxPattern bounds the pattern of a member, in bytes.
	maxPattern = 4 << 10
)

// ConsumerHeartbeat is the request of the consumer protocol by which members join, stay and leave. A field
// without a value is as it was in the member's last request.
type ConsumerHeartbeat struct {
	// Member is a name that the member has chosen; empty for one that joins and asks for a name.
	Group, Member string
	// Share reports whether it is a member of a share group: without Instance, Rebalance, Pattern,
	// Assignor and Owned.
	Share bool
	// Epoch is the member's epoch, or JoinEpoch, LeaveEpoch or PauseEpoch.
	Epoch int32
	// Instance is the name of a static member.
	Instance, Rack string
	// Client is the client's id, Host its address.
	Client, Host string
	// Rebalance is how long the member may take to revoke partitions; at most 24 hours.
	Rebalance time.Duration
	// Topics are the topics that it subscribes to; nil: as before.
	Topics []string
	// Pattern selects further topics: those whose whole name it matches; nil: as before, "": none.
	Pattern *string
	// MayRead reports whether the member may read a topic that its pattern matches.
	MayRead func(topic string) bool
	// Assignor is the policy that it prefers, see [assign.Policies].
	Assignor string
	// Owned are the partitions that it owns; nil: not told.
	Owned assign.Partitions
}

// ConsumerResult is the answer to a ConsumerHeartbeat.
type ConsumerResult struct {
	Member string
	Epoch  int32
	// Heartbeat is the time until the member's next heartbeat.
	Heartbeat time.Duration
	// Assigned are the partitions that it may read; nil: as before.
	Assigned assign.Partitions
}

// full reports whether the request tells everything. Its answer does so too.
func (r ConsumerHeartbeat) full() bool {
	return r.Epoch == JoinEpoch || r.Rebalance > 0 && (r.Topics != nil || r.Pattern != nil) && r.Owned != nil
}

// validate checks the request without the group's state.
func (r ConsumerHeartbeat) validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalidGroupRequest}, args...)...)
	}
	switch {
	case r.Epoch < PauseEpoch || r.Share && r.Epoch == PauseEpoch:
		return invalid("member epoch %d", r.Epoch)
	case r.Epoch != JoinEpoch && r.Member == "":
		return invalid("want a member id")
	case r.Epoch == JoinEpoch && r.Rebalance <= 0 && !r.Share:
		return invalid("want a rebalance timeout from a member that joins")
	case r.Epoch == JoinEpoch && (r.Owned == nil || len(r.Owned) > 0) && !r.Share:
		return invalid("want an empty list of partitions from a member that joins")
	case r.Epoch == JoinEpoch && r.Topics == nil && r.Pattern == nil:
		return invalid("want a subscription from a member that joins")
	case len(r.Topics) > maxSubscribed:
		return invalid("%d topics; want at most %d", len(r.Topics), maxSubscribed)
	}
	if _, known := assign.Policies[r.Assignor]; r.Assignor != "" && !known {
		return fmt.Errorf("%w: %q; want uniform or range", ErrUnknownAssignor, r.Assignor)
	}
	return r.validateTexts()
}

func (r ConsumerHeartbeat) validateTexts() error {
	for _, text := range append([]string{r.Member, r.Instance, r.Rack}, r.Topics...) {
		if len(text) > maxInstanceName {
			return fmt.Errorf("%w: a name of %d bytes; want at most %d", ErrInvalidGroupRequest, len(text), maxInstanceName)
		}
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidGroupRequest, text)
		}
	}
	if r.Pattern == nil {
		return nil
	}
	if len(*r.Pattern) > maxPattern {
		return fmt.Errorf("%w: %d bytes; want at most %d", ErrInvalidPattern, len(*r.Pattern), maxPattern)
	}
	if _, err := compilePattern(*r.Pattern); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidPattern, err)
	}
	return nil
}

// compilePattern returns a pattern for matchesWhole; nil for an empty one.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	compiled, err := regexp.Compile(pattern)
	if err == nil {
		compiled.Longest()
	}
	return compiled, err
}

// matchesWhole reports whether a pattern matches a whole name: its longest match is all of it.
func matchesWhole(pattern *regexp.Regexp, name string) bool {
	at := pattern.FindStringIndex(name)
	return at != nil && at[0] == 0 && at[1] == len(name)
}
