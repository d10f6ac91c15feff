package clients

import (
	"crypto/pbkdf2"
	"crypto/sha512"
	"errors"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// kafkagoAs returns a client that authenticates.
func kafkagoAs(t *testing.T, s secured, mechanism sasl.Mechanism) *kafka.Client {
	t.Helper()
	transport := &kafka.Transport{TLS: s.tls, SASL: mechanism}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(s.addr), Transport: transport, Timeout: patience}
}

// kafkagoUsers makes, describes and removes a user of SCRAM, as the admin token and as that user, who has no right.
func kafkagoUsers(t *testing.T, s secured) {
	const password = "the password of the cashier"
	admin := kafkagoAs(t, s, plain.Mechanism{Username: "admin", Password: adminSecret})
	user := kafka.UserScramCredentialsUpsertion{Name: "cashier", Mechanism: kafka.ScramMechanismSha512, Iterations: 8192, Salt: []byte("salt of the cashier")}
	user.SaltedPassword = must(pbkdf2.Key(sha512.New, password, user.Salt, user.Iterations, sha512.Size))(t)
	alter := func(by *kafka.Client, request kafka.AlterUserScramCredentialsRequest) error {
		t.Helper()
		return must(by.AlterUserScramCredentials(t.Context(), &request))(t).Results[0].Error
	}
	describe := func() kafka.DescribeUserScramCredentialsResponseResult {
		t.Helper()
		request := kafka.DescribeUserScramCredentialsRequest{Users: []kafka.UserScramCredentialsUser{{Name: "cashier"}}}
		return must(admin.DescribeUserScramCredentials(t.Context(), &request))(t).Results[0]
	}
	equal(t, "make a user", alter(admin, kafka.AlterUserScramCredentialsRequest{Upsertions: []kafka.UserScramCredentialsUpsertion{user}}), error(nil))
	equal(t, "the user", describe().CredentialInfos, []kafka.DescribeUserScramCredentialsCredentialInfo{{Mechanism: kafka.ScramMechanismSha512, Iterations: 8192}})

	cashier := kafkagoAs(t, s, must(scram.Mechanism(scram.SHA512, "cashier", password))(t))
	remove := kafka.AlterUserScramCredentialsRequest{Deletions: []kafka.UserScramCredentialsDeletion{{Name: "cashier", Mechanism: kafka.ScramMechanismSha512}}}
	if err := alter(cashier, remove); !errors.Is(err, kafka.ClusterAuthorizationFailed) {
		t.Errorf("the user removes itself without the right: %v", err)
	}
	equal(t, "remove the user", alter(admin, remove), error(nil))
	if err := describe().Error; err == nil {
		t.Error("the user is there after it was removed")
	}
}

// kafkagoQuotas sets a quota of a user, after a request that only validates it, and removes it.
func kafkagoQuotas(t *testing.T, s secured) {
	admin := kafkagoAs(t, s, plain.Mechanism{Username: "admin", Password: adminSecret})
	alter := func(op kafka.AlterClientQuotaOps, validateOnly bool) error {
		t.Helper()
		return must(admin.AlterClientQuotas(t.Context(), &kafka.AlterClientQuotasRequest{ValidateOnly: validateOnly, Entries: []kafka.AlterClientQuotaEntry{{
			Entities: []kafka.AlterClientQuotaEntity{{EntityType: "user", EntityName: "cashier"}}, Ops: []kafka.AlterClientQuotaOps{op},
		}}}))(t).Entries[0].Error
	}
	values := func() (values []kafka.DescribeClientQuotasValue) {
		t.Helper()
		described := must(admin.DescribeClientQuotas(t.Context(), &kafka.DescribeClientQuotasRequest{
			Components: []kafka.DescribeClientQuotasRequestComponent{{EntityType: "user", Match: "cashier"}}, Strict: true,
		}))(t)
		equal(t, "describe", described.Error, error(nil))
		for _, entry := range described.Entries {
			values = append(values, entry.Values...)
		}
		return values
	}
	rate := kafka.AlterClientQuotaOps{Key: "producer_byte_rate", Value: 1000}
	equal(t, "validate", alter(rate, true), error(nil))
	equal(t, "quotas that were validated", len(values()), 0)
	equal(t, "set", alter(rate, false), error(nil))
	equal(t, "quotas", values(), []kafka.DescribeClientQuotasValue{{Key: "producer_byte_rate", Value: 1000}})
	rate.Remove = true
	equal(t, "remove", alter(rate, false), error(nil))
	equal(t, "quotas in the end", len(values()), 0)
	if err := alter(kafka.AlterClientQuotaOps{Key: "bytes", Value: 1}, false); !errors.Is(err, kafka.InvalidRequest) {
		t.Errorf("a quota that does not exist: %v", err)
	}
}
