package group

import (
	"strings"
	"time"

	"github.com/sluice-project/sluice/topic/group/assign"
)

// consumersRecord is the stored part of a group that the consumer protocol has: all that a new coordinator
// needs to go on where the last one was.
type consumersRecord struct {
	// Shared is set for a share group.
	Shared   bool             `json:"shared,omitempty"`
	Assignor string           `json:"assignor"`
	Digest   uint64           `json:"digest"`
	Members  []consumerRecord `json:"members,omitempty"`
}

type consumerRecord struct {
	ID          string            `json:"id"`
	Instance    string            `json:"instance,omitempty"`
	Rack        string            `json:"rack,omitempty"`
	Client      string            `json:"client"`
	Host        string            `json:"host"`
	RebalanceMS int64             `json:"rebalance_ms"`
	Assignor    string            `json:"assignor,omitempty"`
	Topics      []string          `json:"topics,omitempty"`
	Pattern     string            `json:"pattern,omitempty"`
	Matched     []string          `json:"matched,omitempty"`
	Epoch       int32             `json:"epoch"`
	Previous    int32             `json:"previous"`
	State       reconciliation    `json:"state"`
	Assigned    assign.Partitions `json:"assigned,omitempty"`
	Revoking    assign.Partitions `json:"revoking,omitempty"`
	Target      assign.Partitions `json:"target,omitempty"`
	// Classic is set for a member that uses the classic protocol.
	Classic *classicRecord `json:"classic,omitempty"`
}

type classicRecord struct {
	SessionMS int64      `json:"session_ms"`
	Protocols []Protocol `json:"protocols"`
}

func (cs *consumers) record() *consumersRecord {
	r := &consumersRecord{Shared: cs.shared, Assignor: cs.assignor, Digest: cs.digest, Members: make([]consumerRecord, 0, len(cs.members))}
	for _, m := range cs.inOrder() {
		r.Members = append(r.Members, consumerRecord{
			ID: m.id, Instance: m.instance, Rack: m.rack, Client: strings.ToValidUTF8(m.client, ""), Host: m.host,
			RebalanceMS: m.rebalance.Milliseconds(), Assignor: m.assignor,
			Topics: m.topics, Pattern: text(m.pattern), Matched: m.matched,
			Epoch: m.epoch, Previous: m.previous, State: m.state,
			Assigned: m.assigned, Revoking: m.revoking, Target: m.target, Classic: m.classic.record(),
		})
	}
	return r
}

// restoreConsumers sets the members from their record. Sessions, and the times to revoke, start again.
func (g *group) restoreConsumers(now time.Time, r consumersRecord) {
	cs := newConsumers()
	cs.shared, cs.assignor, cs.digest = r.Shared, r.Assignor, r.Digest
	for _, saved := range r.Members {
		g.lastNumber++
		m := &consumer{
			id: saved.ID, instance: saved.Instance, rack: saved.Rack, client: saved.Client, host: saved.Host, number: g.lastNumber,
			rebalance: restoredTimeout(saved.RebalanceMS), assignor: saved.Assignor,
			epoch: saved.Epoch, previous: saved.Previous, state: saved.State, target: saved.Target,
		}
		if m.state == unrevoked {
			m.revokeBy = now.Add(m.rebalance)
		}
		// A pattern that this version cannot read selects nothing once the member is heard of.
		m.pattern, _ = compilePattern(saved.Pattern)
		m.size = ConsumerHeartbeat{
			Member: m.id, Instance: m.instance, Rack: m.rack, Client: m.client, Assignor: m.assignor, Topics: saved.Topics, Pattern: &saved.Pattern,
		}.size()
		if of := saved.Classic; of != nil {
			m.classic = &classicMember{session: restoredTimeout(of.SessionMS), protocols: of.Protocols}
			m.size = JoinRequest{Instance: m.instance, Client: m.client, ProtocolType: consumerProtocol, Protocols: of.Protocols}.size()
		}
		g.touchConsumer(now, m)
		cs.members[m.id] = m
		if m.instance != "" {
			cs.instances[m.instance] = m.id
		}
		cs.read(m, saved.Topics, saved.Matched)
		cs.own(m, saved.Assigned, saved.Revoking)
		g.state = Stable
	}
	g.consumers = cs
}

// ConsumerDescription describes what a member of the consumer protocol has in addition to a classic one.
type ConsumerDescription struct {
	Epoch   int32
	Rack    string
	Topics  []string
	Pattern string
	// Assigned are the partitions that it may read, Target those that it is to have.
	Assigned, Target assign.Partitions
	// Classic reports whether the member uses the classic protocol.
	Classic bool
}

// describe returns the members, in the order in which policies see them.
func (cs *consumers) describe() (members []MemberDescription) {
	for _, m := range cs.inOrder() {
		members = append(members, MemberDescription{
			Member: m.id, Instance: m.instance, Client: m.client, Host: m.host,
			Consumer: &ConsumerDescription{
				Epoch: m.epoch, Rack: m.rack, Topics: m.topics, Pattern: text(m.pattern), Assigned: m.assigned, Target: m.target,
				Classic: m.classic != nil,
			},
		})
	}
	return members
}
