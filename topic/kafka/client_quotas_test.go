package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// Quotas are those of a user, its client ids, and the defaults.
func (m *manager) Quotas() []auth.Quota {
	rates := map[string]float64{auth.ProducerRate: 1000, auth.ConsumerRate: 2000}
	return []auth.Quota{
		{User: "till", Rates: rates}, {User: "till", Client: "app", Rates: rates}, {User: "till", Client: auth.DefaultEntity, Rates: rates},
		{User: auth.DefaultEntity, Rates: rates}, {Client: "app", Rates: rates}, {Client: auth.DefaultEntity, Rates: rates},
	}
}

// ChangeQuotas refuses those of Nobody.
func (m *manager) ChangeQuotas(_ context.Context, changes []auth.Quota, validateOnly bool) ([]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := make([]error, len(changes))
	for i, change := range changes {
		m.changed = append(m.changed, fmt.Sprint(change, " ", change.Rates, " ", validateOnly))
		switch change.User {
		case "Nobody":
			refused[i] = fmt.Errorf("%w: the rate", auth.ErrInvalid)
		case "full":
			return refused, auth.ErrFull
		}
	}
	return refused, nil
}

// userOf returns an entity of a user and a client id, "" for none and "<default>" for the default.
func userOf(user, client string) (entity kadm.ClientQuotaEntity) {
	for _, of := range []struct{ kind, name string }{{"user", user}, {"client-id", client}} {
		switch of.name {
		case "":
		case auth.DefaultEntity:
			entity = append(entity, kadm.ClientQuotaEntityComponent{Type: of.kind})
		default:
			entity = append(entity, kadm.ClientQuotaEntityComponent{Type: of.kind, Name: &of.name})
		}
	}
	return entity
}

// The call of an admin client that describes quotas finds as Kafka does.
func TestDescribeClientQuotas(t *testing.T) {
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: newAccounts("boss")})
	admin := kadm.NewClient(client(t, s, kgo.SASL(mechanismsOf("boss", "boss-secret")[auth.ScramSHA256])))
	till, empty := "till", ""
	exact := func(kind string, name *string) kadm.DescribeClientQuotaComponent {
		return kadm.DescribeClientQuotaComponent{Type: kind, MatchName: name}
	}
	anyOf := func(kind string, match kmsg.QuotasMatchType) kadm.DescribeClientQuotaComponent {
		return kadm.DescribeClientQuotaComponent{Type: kind, MatchType: match}
	}
	for _, test := range []struct {
		filter []kadm.DescribeClientQuotaComponent
		strict bool
		want   string // the places of those that are found
		err    error
	}{
		{nil, false, "012345", nil},
		{nil, true, "", nil},
		{[]kadm.DescribeClientQuotaComponent{exact("user", &till)}, false, "012", nil},
		{[]kadm.DescribeClientQuotaComponent{exact("user", &till)}, true, "0", nil},
		{[]kadm.DescribeClientQuotaComponent{exact("user", &empty)}, false, "", nil},
		{[]kadm.DescribeClientQuotaComponent{anyOf("user", kmsg.QuotasMatchTypeDefault)}, false, "3", nil},
		{[]kadm.DescribeClientQuotaComponent{anyOf("user", kmsg.QuotasMatchTypeAny)}, true, "03", nil},
		{[]kadm.DescribeClientQuotaComponent{anyOf("client-id", kmsg.QuotasMatchTypeAny)}, false, "1245", nil},
		{[]kadm.DescribeClientQuotaComponent{anyOf("user", kmsg.QuotasMatchTypeAny), anyOf("client-id", kmsg.QuotasMatchTypeDefault)}, true, "2", nil},
		{[]kadm.DescribeClientQuotaComponent{anyOf("ip", kmsg.QuotasMatchTypeAny)}, false, "", nil},
		{[]kadm.DescribeClientQuotaComponent{exact("user", nil)}, false, "", kerr.InvalidRequest},
		{[]kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &till, MatchType: kmsg.QuotasMatchTypeAny}}, false, "", kerr.InvalidRequest},
		{[]kadm.DescribeClientQuotaComponent{anyOf("user", 3)}, false, "", kerr.InvalidRequest},
		{[]kadm.DescribeClientQuotaComponent{anyOf("user", kmsg.QuotasMatchTypeAny), exact("user", &till)}, false, "", kerr.InvalidRequest},
		{[]kadm.DescribeClientQuotaComponent{anyOf("group", kmsg.QuotasMatchTypeAny)}, false, "", kerr.UnsupportedVersion},
	} {
		found, err := admin.DescribeClientQuotas(t.Context(), test.strict, test.filter)
		var got, want []string
		for _, q := range found {
			got = append(got, fmt.Sprint(q.Entity, q.Values))
		}
		all := (*manager)(nil).Quotas()
		for _, at := range test.want {
			q := all[at-'0']
			want = append(want, fmt.Sprint(userOf(q.User, q.Client), kadm.ClientQuotaValues{{Key: "consumer_byte_rate", Value: 2000}, {Key: "producer_byte_rate", Value: 1000}}))
		}
		if !slices.Equal(got, want) || !errors.Is(err, test.err) {
			t.Errorf("%+v, strict %v: %v, %v; want %v, %v", test.filter, test.strict, got, err, want, test.err)
		}
	}
	without := dial(t, start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{}))
	wantCode(t, "without accounts", ask[*kmsg.DescribeClientQuotasResponse](without, 1, kmsg.NewPtrDescribeClientQuotasRequest()).ErrorCode, kerr.SecurityDisabled)
}

// The call of an admin client that changes quotas has the codes of Kafka, and says what would be right.
func TestAlterClientQuotas(t *testing.T) {
	all, has := newAccounts("boss"), &manager{}
	all.Manager = has
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: all})
	admin := kadm.NewClient(client(t, s, kgo.SASL(mechanismsOf("boss", "boss-secret")[auth.ScramSHA256])))
	rate := func(value float64) kadm.AlterClientQuotaOp {
		return kadm.AlterClientQuotaOp{Key: auth.ProducerRate, Value: value}
	}
	name := func(kind, name string) kadm.ClientQuotaEntity {
		return kadm.ClientQuotaEntity{{Type: kind, Name: &name}}
	}
	tests := []struct {
		entity kadm.ClientQuotaEntity
		ops    []kadm.AlterClientQuotaOp
		want   string // what the manager gets
		err    string
	}{
		{userOf("till", "app"), []kadm.AlterClientQuotaOp{rate(1000), {Key: auth.ConsumerRate, Remove: true}}, "user=till,client-id=app map[consumer_byte_rate:0 producer_byte_rate:1000]", ""},
		{userOf("<default>", ""), []kadm.AlterClientQuotaOp{rate(1)}, "user=<default> map[producer_byte_rate:1]", ""},
		{userOf("", "<default>"), nil, "client-id=<default> map[]", ""},
		{userOf("Nobody", ""), []kadm.AlterClientQuotaOp{rate(math.NaN())}, "user=Nobody map[producer_byte_rate:NaN]", "the rate"},
		{userOf("till", ""), []kadm.AlterClientQuotaOp{rate(0)}, "", "at least 1"},
		{userOf("till", ""), []kadm.AlterClientQuotaOp{rate(1), rate(2)}, "", "more than once"},
		{append(userOf("till", ""), userOf("desk", "")...), nil, "", "more than once"},
		{name("user", ""), nil, "", "want a name, or null"},
		{name("client-id", "<default>"), nil, "", "want a name, or null"},
		{name("ip", "10.0.0.1"), []kadm.AlterClientQuotaOp{{Key: "connection_creation_rate", Value: 1}}, "", "quotas of addresses are not supported"},
		{name("group", "tills"), nil, "", "want user or client-id"},
	}
	for _, alter := range []struct {
		validates bool
		call      func(context.Context, []kadm.AlterClientQuotaEntry) (kadm.AlteredClientQuotas, error)
	}{{false, admin.AlterClientQuotas}, {true, admin.ValidateAlterClientQuotas}} {
		var entries []kadm.AlterClientQuotaEntry
		var want []string
		for _, test := range tests {
			entries = append(entries, kadm.AlterClientQuotaEntry{Entity: test.entity, Ops: test.ops})
			if test.want != "" {
				want = append(want, fmt.Sprint(test.want, " ", alter.validates))
			}
		}
		altered, err := alter.call(t.Context(), entries)
		if err != nil || len(altered) != len(tests) {
			t.Fatal(altered, err)
		}
		for i, test := range tests {
			got := altered[i]
			if got.Entity.String() != test.entity.String() || (test.err != "") != errors.Is(got.Err, kerr.InvalidRequest) || !strings.Contains(got.ErrMessage, test.err) {
				t.Errorf("%v %v: %+v, want %q", test.entity, test.ops, got, test.err)
			}
		}
		if changed := has.takeChanged(); !slices.Equal(changed, want) {
			t.Errorf("changed %q, want %q", changed, want)
		}
	}
	quotasAreBounded(t, admin)
}

// quotasAreBounded asks for more changes than a manager or a request can have.
func quotasAreBounded(t *testing.T, admin *kadm.Client) {
	t.Helper()
	altered, err := admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{Entity: userOf("full", "")}, {Entity: userOf("till", "")}})
	if err != nil || !errors.Is(altered[0].Err, kerr.PolicyViolation) || !errors.Is(altered[1].Err, kerr.PolicyViolation) {
		t.Errorf("without place for more: %v, %v", altered, err)
	}
	altered, err = admin.AlterClientQuotas(t.Context(), make([]kadm.AlterClientQuotaEntry, maxQuotaChanges+1))
	if err != nil || !errors.Is(altered[maxQuotaChanges].Err, kerr.InvalidRequest) {
		t.Errorf("too many entities: %v", err)
	}
}
