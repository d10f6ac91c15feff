package serve

import (
	"crypto/x509"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/clusterkey"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// kafkaAccounts are the accounts as the server for Kafka clients sees them, and one more: that of the
// cluster's nodes.
type kafkaAccounts struct {
	*access.Accounts
	// node are the keys of the nodes' account; without a cluster nobody has it.
	node *access.ScramKeys
}

// newKafkaAccounts returns the accounts for Kafka clients; nil without accounts. The nodes of a cluster
// prove that they have its secret, "" without a cluster.
func newKafkaAccounts(accounts *access.Accounts, cluster string) (auth.Accounts, error) {
	if accounts == nil {
		return nil, nil
	}
	a := &kafkaAccounts{Accounts: accounts}
	if cluster != "" {
		keys, err := access.ScramSHA256Keys(nodeSecret(cluster), []byte(nodeAccount))
		if err != nil {
			return nil, err
		}
		a.node = &keys
	}
	return a, nil
}

// Secret implements auth.Accounts.
func (a *kafkaAccounts) Secret(secret string) (auth.Principal, error) {
	p, err := a.Bearer(secret)
	if err != nil {
		return nil, explained(err)
	}
	return kafkaPrincipal{p, a.Accounts}, nil
}

// Certificate implements auth.Accounts.
func (a *kafkaAccounts) Certificate(shown *x509.Certificate) (auth.Principal, error) {
	p, err := a.Accounts.Certificate(shown)
	if err != nil {
		return nil, explained(err)
	}
	return kafkaPrincipal{p, a.Accounts}, nil
}

// Scram implements auth.Accounts.
func (a *kafkaAccounts) Scram(mechanism, name string) (auth.Principal, auth.ScramKeys, error) {
	if name == nodeAccount && a.node != nil && mechanism == access.ScramSHA256 {
		return node{}, scramKeys(*a.node), nil
	}
	p, keys, err := a.Accounts.Scram(name, mechanism)
	return kafkaPrincipal{p, a.Accounts}, scramKeys(keys), explained(err)
}

func scramKeys(of access.ScramKeys) auth.ScramKeys {
	return auth.ScramKeys{Salt: of.Salt, Iterations: of.Iterations, StoredKey: of.Stored, ServerKey: of.Server}
}

// explained returns an error of accounts in words for clients.
func explained(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(access.Explain(err))
}

// kafkaPrincipal is somebody with a token, a JWT or a certificate.
type kafkaPrincipal struct {
	*access.Principal
	accounts *access.Accounts
}

// Name implements auth.Principal.
func (p kafkaPrincipal) Name() string { return p.Principal.Name }

// Owner implements auth.Principal.
func (p kafkaPrincipal) Owner() string { return p.Principal.Name }

// Expires implements auth.Principal.
func (p kafkaPrincipal) Expires() time.Time { return p.Principal.Expires }

// Valid implements auth.Principal.
func (p kafkaPrincipal) Valid() bool { return p.accounts.Valid(p.Principal) }

// kafkaResources are the kinds of resources in the table of rights.
var kafkaResources = [...]access.Resource{
	auth.Cluster: access.Cluster, auth.Topic: access.Topic, auth.Group: access.Group, auth.Transaction: access.Transaction,
}

// May implements auth.Principal.
func (p kafkaPrincipal) May(host string, request int16, of auth.Resource, name string) bool {
	return p.accounts.MayRequest(p.Principal, host, request, kafkaResources[of], name)
}

// Meter implements auth.Principal.
func (p kafkaPrincipal) Meter(rate, client string) auth.Meter {
	if m := p.accounts.Meter(p.Principal, rate, client); m != nil {
		return m
	}
	return nil
}

// nodeAccount is the name of the account of nodes. No token can have it.
const nodeAccount = "$node"

// nodeSecret returns the secret of the account of nodes.
func nodeSecret(cluster string) string { return clusterkey.Derive(cluster, clusterkey.Kafka) }

// nodeLogin returns how a node authenticates to the others.
func nodeLogin(cluster string) sasl.Mechanism {
	return scram.Auth{User: nodeAccount, Pass: nodeSecret(cluster)}.AsSha256Mechanism()
}

// node is a node of the cluster. It may do everything.
type node struct{}

// Name implements auth.Principal.
func (node) Name() string { return nodeAccount }

// Owner implements auth.Principal: what nodes create is the cluster's.
func (node) Owner() string { return "" }

// Expires implements auth.Principal.
func (node) Expires() time.Time { return time.Time{} }

// Valid implements auth.Principal.
func (node) Valid() bool { return true }

// May implements auth.Principal.
func (node) May(string, int16, auth.Resource, string) bool { return true }

// Meter implements auth.Principal: nodes have no quota.
func (node) Meter(string, string) auth.Meter { return nil }
