package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/sluice-project/sluice/topic"
)

// Cluster are the settings of a node of a cluster.
type Cluster struct {
	// Name is the name of the cluster; empty: a single server.
	Name string
	// Node is this node's number, from 1.
	Node int
	// Rack is where the node stands: replicas are spread over racks.
	Rack string
	// Listen is the host:port for the other nodes, and Advertise the host:port that
	// they connect to; empty: Listen.
	Listen, Advertise string
	// AdvertiseHTTP is the host:port at which operators reach this node's HTTP, or
	// "auto".
	AdvertiseHTTP string
	// Peers are the host:port of the nodes to connect to; this node may be among them.
	Peers List
	// Secret authenticates the nodes to each other; SecretFile has it instead.
	Secret     Secret
	SecretFile string
	// CertFile, KeyFile and CAFile are for TLS between nodes, both ways.
	CertFile, KeyFile, CAFile string
	// Insecure allows nodes on different machines without TLS.
	Insecure bool
}

// secretLeast is the least length of the secret of a cluster.
const secretLeast = 16

// On reports whether the process is a node of a cluster.
func (c *Cluster) On() bool { return c.Name != "" }

// SharedSecret returns the secret, from its file if there is one. Its errors do not
// show the secret.
func (c *Cluster) SharedSecret() (string, error) { return readSecret(c.Secret, c.SecretFile) }

// Advertised returns the addresses that other nodes and clients use for this node.
func (c *Config) Advertised() topic.Advertised {
	at := topic.Advertised{Rack: c.Cluster.Rack}
	for i, listener := range c.Listeners() {
		address := listener.reached()
		if i == 0 {
			at.Host, _, _ = net.SplitHostPort(address) // empty, or checked when it was set
			_, port, _ := net.SplitHostPort(cmp.Or(address, listener.Addr))
			number, _ := strconv.ParseUint(port, 10, 16)
			at.Port = int32(number)
			if listener.Name != "" {
				at.Listeners = map[string]string{}
			}
		}
		if listener.Name != "" {
			at.Listeners[listener.Name] = address
		}
	}
	address, listener := c.Cluster.AdvertiseHTTP, c.operators()
	if address == advertiseAuto {
		address = listener.Addr
		if own, httpPort, err := net.SplitHostPort(address); err == nil && wildcard(own) && at.Host != "" {
			address = net.JoinHostPort(at.Host, httpPort)
		}
	}
	at.HTTP = "http://" + address
	if listener.TLS {
		at.HTTP = "https://" + address
	}
	return at
}

// operators returns the listener of http that operators of a cluster are told to connect to: the first that others than this
// machine reach, else the first.
func (c *Config) operators() Listener {
	all := c.HTTPListeners()
	return all[max(0, slices.IndexFunc(all, Listener.exposed))]
}

// validateCluster checks what a node of a cluster needs.
func (c *Config) validateCluster() error {
	if !c.Cluster.On() {
		for _, key := range []string{"cluster.node", "cluster.peers"} {
			if source := c.Source(key); source != "default" && (c.Cluster.Node > 0 || len(c.Cluster.Peers) > 0) {
				return c.wrong(key, "want cluster.name too (--cluster NAME)")
			}
		}
		return nil
	}
	for _, check := range []func() (key, why string){c.wrongNode, c.wrongSecret, c.wrongTLS, c.wrongReach, c.wrongState} {
		if key, why := check(); why != "" {
			return c.wrong(key, why)
		}
	}
	return nil
}

// wrongNode returns what is wrong with the number and the peers of this node.
func (c *Config) wrongNode() (key, why string) {
	own := []string{c.Cluster.Listen, c.Cluster.Advertise}
	others := slices.DeleteFunc(slices.Clone(c.Cluster.Peers), func(peer string) bool { return slices.Contains(own, peer) })
	switch {
	case !c.Topic.On():
		return "kafka", "a node of a cluster serves topics: give it an address, such as 127.0.0.1:9092"
	case c.Cluster.Node < 1:
		return "cluster.node", "a node of a cluster needs a number of its own, from 1 (--node 1)"
	case len(others) == 0:
		return "cluster.peers", "want the addresses of the other nodes (--peers node1:6222,node2:6222,node3:6222)"
	}
	return "", ""
}

// wrongSecret returns what is wrong with the secret, without showing it.
func (c *Config) wrongSecret() (key, why string) {
	key = "cluster.secret"
	if c.Cluster.SecretFile != "" {
		if c.Cluster.Secret != "" {
			return key, "want this or cluster.secret_file, not both"
		}
		key = "cluster.secret_file"
	}
	if err := c.Cluster.Secret.Validate(); err != nil {
		return key, err.Error()
	}
	secret, err := c.Cluster.SharedSecret()
	switch {
	case err != nil:
		return key, err.Error()
	case secret == "":
		return key, "the nodes of a cluster need one secret, the same on all: set SLUICE_CLUSTER_SECRET or cluster.secret_file; \"openssl rand -hex 32\" makes one"
	case len(secret) < secretLeast:
		return key, fmt.Sprintf("it has %d characters: want at least %d; \"openssl rand -hex 32\" makes one", len(secret), secretLeast)
	}
	return "", ""
}

// wrongTLS refuses nodes on different machines without TLS, unless cluster.insecure
// is set.
func (c *Config) wrongTLS() (key, why string) {
	k := &c.Cluster
	var missing []string
	for _, file := range []struct{ key, path string }{
		{"cluster.cert_file", k.CertFile}, {"cluster.key_file", k.KeyFile}, {"cluster.ca_file", k.CAFile},
	} {
		if file.path == "" {
			missing = append(missing, file.key)
		}
	}
	switch {
	case len(missing) == 0 && k.Insecure:
		return "cluster.insecure", "want it without cluster.cert_file: with TLS the nodes are not insecure"
	case len(missing) == 0:
		return "", ""
	case len(missing) < 3:
		return missing[0], "want all of cluster.cert_file, cluster.key_file and cluster.ca_file, or none"
	}
	addresses := append(slices.Clone(k.Peers), k.Listen)
	if !k.Insecure && slices.ContainsFunc(addresses, func(address string) bool { return !loopback(address) }) {
		return "cluster.cert_file", "nodes on different machines need TLS: want cluster.cert_file, cluster.key_file and cluster.ca_file, or, where nobody else is on the network between them, cluster.insecure"
	}
	return "", ""
}

// wrongReach returns what is wrong with the advertised addresses.
func (c *Config) wrongReach() (key, why string) {
	const told = `others are told to connect to it: want topic.advertise with a host:port that clients reach (--topic-advertise %s)`
	for _, listener := range c.Listeners() {
		if listener.reached() == "" {
			return "kafka", fmt.Sprintf("%q: "+told, listener, listener.advertising("node1.example.com:9092"))
		}
	}
	if c.Cluster.AdvertiseHTTP == advertiseAuto {
		listener := c.operators()
		if _, port, err := net.SplitHostPort(listener.Addr); err != nil || port == "0" {
			return "http", fmt.Sprintf("%q: operators are told to connect to it: want a port, or cluster.advertise_http", listener)
		}
	}
	return "", ""
}

// wrongState refuses a state that the nodes cannot share.
func (c *Config) wrongState() (key, why string) {
	if c.State.IsEmbedded() {
		return "state", "bulk actions and rooms of a cluster are in a Redis that its nodes share: want a URL (--state redis://host:6379), or off: neither of the two (--state off)"
	}
	return "", ""
}
