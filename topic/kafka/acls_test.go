package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/storetest"
)

// ACLs finds by the resource only.
func (m *manager) ACLs(filter auth.ACLFilter) []auth.ACL {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = append(m.changed, filterText(filter))
	return slices.DeleteFunc(slices.Clone(m.acls), func(l auth.ACL) bool { return filter.Resource != "" && l.Resource != filter.Resource })
}

// CreateACLs refuses those of Nobody.
func (m *manager) CreateACLs(_ context.Context, all []auth.ACL) ([]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := make([]error, len(all))
	for i, l := range all {
		if l.Principal == "User:Nobody" {
			refused[i] = fmt.Errorf("%w: principal", auth.ErrInvalid)
			continue
		}
		m.acls = append(m.acls, l)
	}
	return refused, nil
}

func (m *manager) DeleteACLs(_ context.Context, filters []auth.ACLFilter) ([][]auth.ACL, error) {
	removed := make([][]auth.ACL, len(filters))
	for i, filter := range filters {
		removed[i] = m.ACLs(filter)
	}
	return removed, nil
}

func filterText(f auth.ACLFilter) string {
	return strings.Join([]string{f.Permission, orEmpty(f.Principal), f.Operation, f.Pattern, f.Resource, orEmpty(f.Name), orEmpty(f.Host)}, " ")
}

// The calls of an admin client for access lists have Kafka's words and codes.
func TestACLCalls(t *testing.T) {
	all, has := newAccounts("boss"), &manager{}
	all.Manager = has
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: all})
	admin := kadm.NewClient(client(t, s, kgo.SASL(mechanismsOf("boss", "boss-secret")[auth.ScramSHA256])))
	created, err := admin.CreateACLs(t.Context(), kadm.NewACLs().Allow("User:till", "User:Nobody").AllowHosts("10.0.0.1").Topics("orders").Groups("tills").
		ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead, kadm.OpDescribeConfigs))
	if err != nil || len(created) != 8 {
		t.Fatal(created, err)
	}
	for _, one := range created {
		var want error
		if one.Principal == "User:Nobody" {
			want = kerr.InvalidRequest
		}
		if !errors.Is(one.Err, want) {
			t.Errorf("%+v: want %v", one, want)
		}
	}
	if _, err := admin.CreateACLs(t.Context(), kadm.NewACLs().Deny("User:*").DenyHosts().Clusters().TransactionalIDs("tx").Operations(kadm.OpAll)); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, l := range has.ACLs(auth.ACLFilter{}) {
		texts = append(texts, l.String())
	}
	slices.Sort(texts)
	want := []string{
		"allow User:till describe_configs on prefixed group:tills from 10.0.0.1", "allow User:till describe_configs on prefixed topic:orders from 10.0.0.1",
		"allow User:till read on prefixed group:tills from 10.0.0.1", "allow User:till read on prefixed topic:orders from 10.0.0.1",
		"deny User:* all on literal cluster:kafka-cluster from *", "deny User:* all on literal transactional_id:tx from *",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("created %q, want %q", texts, want)
	}
	described, err := admin.DescribeACLs(t.Context(), kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().ResourcePatternType(kadm.ACLPatternAny).Operations())
	if err != nil || len(described[0].Described) != len(want) {
		t.Fatal(described, err)
	}
	texts = nil
	for _, l := range described[0].Described {
		texts = append(texts, auth.ACL{
			Resource: word(l.Type), Pattern: word(l.Pattern), Name: l.Name, Principal: l.Principal, Host: l.Host, Operation: word(l.Operation), Permission: word(l.Permission),
		}.String())
	}
	slices.Sort(texts)
	if !slices.Equal(texts, want) {
		t.Errorf("described %q, want %q", texts, want)
	}
	has.takeChanged()
	deletesACLs(t, s, admin, has)
	without := dial(t, start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{}))
	wantCode(t, "without accounts", ask[*kmsg.DescribeACLsResponse](without, 3, kmsg.NewPtrDescribeACLsRequest()).ErrorCode, kerr.SecurityDisabled)
}

func deletesACLs(t *testing.T, s *Server, admin *kadm.Client, has *manager) {
	t.Helper()
	deleted, err := admin.DeleteACLs(t.Context(), kadm.NewACLs().Topics("orders").Allow("User:till").AllowHosts("*").ResourcePatternType(kadm.ACLPatternMatch).Operations(kadm.OpRead))
	changed := has.takeChanged()
	if err != nil || len(deleted) != 1 || len(deleted[0].Deleted) != 2 || !slices.Equal(changed, []string{"allow User:till read match topic orders *"}) {
		t.Errorf("deleted %+v, %v by %q", deleted, err, changed)
	}
	unknown := kmsg.NewPtrDeleteACLsRequest()
	unknown.Filters = make([]kmsg.DeleteACLsRequestFilter, 2)
	unknown.Filters[1] = kmsg.DeleteACLsRequestFilter{ResourceType: 4, ResourcePatternType: 1, Operation: 1, PermissionType: 1}
	boss := dial(t, s)
	boss.authenticate("boss")
	got := ask[*kmsg.DeleteACLsResponse](boss, 3, unknown)
	wantCode(t, "a filter with unknown words", got.Results[0].ErrorCode, kerr.InvalidRequest)
	if len(got.Results[1].MatchingACLs) != 1 || got.Results[1].ErrorCode != 0 {
		t.Errorf("another filter beside it: %+v", got.Results[1])
	}
	unknown.Filters = make([]kmsg.DeleteACLsRequestFilter, maxACLChanges+1)
	wantCode(t, "too many filters", ask[*kmsg.DeleteACLsResponse](boss, 3, unknown).Results[maxACLChanges].ErrorCode, kerr.InvalidRequest)
}
