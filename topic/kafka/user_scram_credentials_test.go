package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/storetest"
)

// manager is a Manager that has some users, and refuses some changes.
type manager struct {
	mu      sync.Mutex
	changed []string
	acls    []auth.ACL
}

// takeChanged returns what was asked since the last call.
func (m *manager) takeChanged() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := m.changed
	m.changed = nil
	return changed
}

func (m *manager) Users() []auth.ScramUser {
	return []auth.ScramUser{{Name: "both", Iterations: map[string]int{auth.ScramSHA256: 4096, auth.ScramSHA512: 8192}}, {Name: "one", Iterations: map[string]int{auth.ScramSHA512: 4096}}}
}

func (m *manager) ChangeUsers(_ context.Context, changes []auth.ScramChange) (map[string]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := map[string]error{}
	for _, change := range changes {
		m.changed = append(m.changed, fmt.Sprint(change.User, " ", change.Mechanism, " ", change.Remove, " ", len(change.Salted)))
		switch change.User {
		case "invalid":
			refused[change.User] = fmt.Errorf("%w: salt", auth.ErrInvalid)
		case "missing":
			refused[change.User] = auth.ErrNotFound
		case "full":
			return nil, auth.ErrFull
		}
	}
	return refused, nil
}

// The calls of an admin client for users of SCRAM have the codes of Kafka.
func TestUserScramCredentials(t *testing.T) {
	all, has := newAccounts("boss"), &manager{}
	all.Manager = has
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{Accounts: all})
	admin := kadm.NewClient(client(t, s, kgo.SASL(mechanismsOf("boss", "boss-secret")[auth.ScramSHA256])))
	described, err := admin.DescribeUserSCRAMs(t.Context())
	if err != nil || !slices.Equal(described.Sorted()[0].CredInfos, []kadm.CredInfo{{Mechanism: kadm.ScramSha256, Iterations: 4096}, {Mechanism: kadm.ScramSha512, Iterations: 8192}}) || len(described) != 2 {
		t.Errorf("all users: %v, %v", described, err)
	}
	described, err = admin.DescribeUserSCRAMs(t.Context(), "one", "two", "both", "both")
	if err != nil || len(described) != 3 || described["one"].Err != nil || !errors.Is(described["two"].Err, kerr.ResourceNotFound) || !errors.Is(described["both"].Err, kerr.DuplicateResource) {
		t.Errorf("some users: %v, %v", described, err)
	}
	set := func(user string, mechanism kadm.ScramMechanism) kadm.UpsertSCRAM {
		return kadm.UpsertSCRAM{User: user, Mechanism: mechanism, Iterations: 4096, Salt: []byte("a salt"), SaltedPassword: []byte("12345678")}
	}
	altered, err := admin.AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: "missing", Mechanism: kadm.ScramSha512}, {User: "twice", Mechanism: kadm.ScramSha256}},
		[]kadm.UpsertSCRAM{set("good", kadm.ScramSha256), set("good", kadm.ScramSha512), set("invalid", kadm.ScramSha256), set("twice", kadm.ScramSha256)})
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]error{
		"good": nil, "missing": kerr.ResourceNotFound, "invalid": kerr.UnacceptableCredential, "twice": kerr.DuplicateResource,
	} {
		if got := altered[user]; !errors.Is(got.Err, want) || (want == nil) != (got.ErrMessage == "") {
			t.Errorf("%s: %v, want %v", user, got, want)
		}
	}
	changed := has.takeChanged()
	if want := []string{"missing SCRAM-SHA-512 true 0", "good SCRAM-SHA-256 false 8", "good SCRAM-SHA-512 false 8", "invalid SCRAM-SHA-256 false 8"}; !slices.Equal(changed, want) {
		t.Errorf("changed %q, want %q", changed, want)
	}
	altered, err = admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{set("full", kadm.ScramSha256), set("good", kadm.ScramSha256)})
	if err != nil || !errors.Is(altered["full"].Err, kerr.PolicyViolation) || !errors.Is(altered["good"].Err, kerr.PolicyViolation) {
		t.Errorf("without place for more: %v, %v", altered, err)
	}
	odd := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	odd.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "odd", Mechanism: 3}}
	boss := dial(t, s)
	boss.authenticate("boss")
	wantCode(t, "a mechanism that does not exist", ask[*kmsg.AlterUserSCRAMCredentialsResponse](boss, 0, odd).Results[0].ErrorCode, kerr.UnsupportedSaslMechanism)
	odd.Deletions = make([]kmsg.AlterUserSCRAMCredentialsRequestDeletion, maxScramChanges+1)
	wantCode(t, "too many changes", ask[*kmsg.AlterUserSCRAMCredentialsResponse](boss, 0, odd).Results[maxScramChanges].ErrorCode, kerr.InvalidRequest)
	without := dial(t, start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{}))
	got := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](without, 0, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest())
	wantCode(t, "without accounts", got.ErrorCode, kerr.SecurityDisabled)
}
