package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"strings"
	"time"

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
	// unknown is the secret that keys of unknown names are made of.
	unknown string
}

// newKafkaAccounts returns the accounts for Kafka clients; nil without accounts. The nodes of a cluster
// prove that they have its secret, "" without a cluster. Keys of unknown names are made of the admin
// token, so that all instances answer the same.
func newKafkaAccounts(accounts *access.Accounts, admin, cluster string) (auth.Accounts, error) {
	if accounts == nil {
		return nil, nil
	}
	a := &kafkaAccounts{Accounts: accounts, unknown: clusterkey.Derive(admin, clusterkey.UnknownAccounts)}
	if cluster != "" {
		keys, err := access.ScramSHA256Keys(clusterkey.Derive(cluster, clusterkey.Kafka), a.made(sha256.New, "salt", nodeAccount))
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
		return nil, err
	}
	return kafkaPrincipal{p, a.Accounts}, nil
}

// Scram implements auth.Accounts.
func (a *kafkaAccounts) Scram(mechanism, name string) (auth.Principal, auth.ScramKeys, error) {
	of := map[string]func() hash.Hash{access.ScramSHA256: sha256.New, access.ScramSHA512: sha512.New}[mechanism]
	unknown := auth.ScramKeys{ // made for each name, so that known ones take as long
		Salt: a.made(sha256.New, "salt", name)[:access.SaltBytes], Iterations: access.Iterations,
		StoredKey: a.made(of, "stored", name), ServerKey: a.made(of, "server", name),
	}
	if name == nodeAccount && a.node != nil && mechanism == access.ScramSHA256 {
		return node{}, auth.ScramKeys{Salt: a.node.Salt, Iterations: a.node.Iterations, StoredKey: a.node.Stored, ServerKey: a.node.Server}, nil
	}
	p, keys, err := a.Accounts.Scram(name, mechanism)
	if keys.Salt == nil {
		return nil, unknown, err
	}
	return kafkaPrincipal{p, a.Accounts}, auth.ScramKeys{Salt: keys.Salt, Iterations: keys.Iterations, StoredKey: keys.Stored, ServerKey: keys.Server}, err
}

// made returns a part of the keys of an unknown name.
func (a *kafkaAccounts) made(of func() hash.Hash, part, name string) []byte {
	mac := hmac.New(of, []byte(a.unknown))
	mac.Write([]byte(part + " of " + name))
	return mac.Sum(nil)
}

// kafkaPrincipal is somebody with a token.
type kafkaPrincipal struct {
	*access.Principal
	accounts *access.Accounts
}

// Name implements auth.Principal.
func (p kafkaPrincipal) Name() string { return p.Principal.Name }

// Expires implements auth.Principal.
func (p kafkaPrincipal) Expires() time.Time { return p.Principal.Expires }

// Valid implements auth.Principal.
func (p kafkaPrincipal) Valid() bool { return p.accounts.Valid(p.Principal) }

// ownTopics begins the names of the topics that only servers write.
const ownTopics = "sluice."

// May implements auth.Principal. Requests without a row in the table are refused.
func (p kafkaPrincipal) May(request int16, of auth.Resource, name string) bool {
	right, known := access.Request(request)
	if !known || !p.Principal.May(right) {
		return false
	}
	switch of {
	case auth.Topic:
		return p.Topic(name) && (right != access.Produce || !strings.HasPrefix(name, ownTopics))
	case auth.Group:
		return p.Group(name)
	case auth.Transaction:
		return p.Transaction(name)
	default:
		return true
	}
}

// nodeAccount is the name of the account of nodes. No token can have it.
const nodeAccount = "$node"

// node is a node of the cluster. It may do everything.
type node struct{}

// Name implements auth.Principal.
func (node) Name() string { return nodeAccount }

// Expires implements auth.Principal.
func (node) Expires() time.Time { return time.Time{} }

// Valid implements auth.Principal.
func (node) Valid() bool { return true }

// May implements auth.Principal.
func (node) May(int16, auth.Resource, string) bool { return true }
