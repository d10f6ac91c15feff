package natsstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/internal/renew"
)

// ClusterOptions make the store one node of a cluster.
type ClusterOptions struct {
	// Name is the name of the cluster, the same on all nodes: at most 64 letters, digits,
	// "-" and "_".
	Name string
	// Node is the number of this node, 1 or more. It is unique and never changes.
	Node int32
	// Rack is the rack of this node: at most 64 letters, digits, "-" and "_". Empty if it is
	// not known.
	Rack string
	// Listen is the address that other nodes connect to, "host:port". An empty host means
	// all addresses of the machine.
	Listen string
	// Advertise is the address at which other nodes reach this one, "host:port"; default
	// Listen.
	Advertise string
	// Peers are the addresses of other nodes, "host:port", at least one. They may include
	// this node's own. The node learns of further nodes from its peers. When a cluster starts
	// for the first time, each node must name all others, and all named nodes must be there,
	// so that two halves cannot each become the cluster. Later starts need a majority.
	Peers []string
	// Secret authenticates nodes to each other, 16 bytes or more. They send a key that is
	// derived from it: without TLS in plain text, and whoever reads that key can connect as a
	// node.
	Secret string
	// TLS, if set, secures all connections between nodes, with authentication in both
	// directions. It needs a certificate, and the trusted authorities as RootCAs and as
	// ClientCAs.
	TLS *tls.Config
	// CertFile, KeyFile and CAFile are the same in PEM files: all three or none. The
	// certificate and its key are read again when they change.
	CertFile, KeyFile, CAFile string
	// JoinTimeout is how long opening waits for enough other nodes. Default 10 minutes.
	JoinTimeout time.Duration
}

// named returns how many nodes the options name, this one included.
func (o ClusterOptions) named() int {
	count := 1
	for _, peer := range o.Peers {
		if peer != o.Advertise && peer != o.Listen {
			count++
		}
	}
	return count
}

// minSecret is the least length of a secret.
const minSecret = 16

func (o ClusterOptions) withDefaults() ClusterOptions {
	if o.Advertise == "" {
		o.Advertise = o.Listen
	}
	if o.JoinTimeout == 0 {
		o.JoinTimeout = startTimeout
	}
	return o
}

func (o ClusterOptions) validate() error {
	switch {
	case !clusterName(o.Name):
		return fmt.Errorf("cluster name %q: want 1 to 64 letters, digits, - and _", o.Name)
	case o.Node < 1:
		return fmt.Errorf("node %d: want 1 or more", o.Node)
	case o.Rack != "" && !clusterName(o.Rack):
		return fmt.Errorf("rack %q: want at most 64 letters, digits, - and _", o.Rack)
	case len(o.Secret) < minSecret:
		return fmt.Errorf("the cluster's secret has %d bytes: want %d or more", len(o.Secret), minSecret)
	case o.JoinTimeout < 0:
		return fmt.Errorf("join timeout %v: want 0 or more", o.JoinTimeout)
	}
	if _, _, err := splitAddress(o.Listen, true); err != nil {
		return fmt.Errorf("listen address of the cluster: %w", err)
	}
	if _, _, err := splitAddress(o.Advertise, o.Advertise == o.Listen); err != nil {
		return fmt.Errorf("advertised address of the cluster: %w", err)
	}
	others := 0
	for _, peer := range o.Peers {
		if _, _, err := splitAddress(peer, false); err != nil {
			return fmt.Errorf("address of a peer: %w", err)
		}
		if peer != o.Advertise && peer != o.Listen {
			others++
		}
	}
	if others == 0 {
		return errors.New("peers: want the address of at least one other node")
	}
	return o.validateTLS()
}

func (o ClusterOptions) validateTLS() error {
	files := 0
	for _, file := range []string{o.CertFile, o.KeyFile, o.CAFile} {
		if file != "" {
			files++
		}
	}
	switch {
	case files != 0 && files != 3:
		return errors.New("TLS between nodes: want a certificate, its key and the authorities' certificates, all three")
	case files != 0 && o.TLS != nil:
		return errors.New("TLS between nodes: want files or a configuration, not both")
	case o.TLS != nil && len(o.TLS.Certificates) == 0 && (o.TLS.GetCertificate == nil || o.TLS.GetClientCertificate == nil):
		return errors.New("TLS between nodes: want a certificate, for both directions")
	case o.TLS != nil && (o.TLS.RootCAs == nil || o.TLS.ClientCAs == nil):
		return errors.New("TLS between nodes: want the authorities' certificates as RootCAs and as ClientCAs")
	case o.TLS != nil && o.TLS.InsecureSkipVerify:
		return errors.New("TLS between nodes: nodes must prove who they are: want InsecureSkipVerify false")
	}
	return nil
}

// tlsConfig returns the configuration of connections between nodes, nil without TLS. A
// certificate in files is renewed while the node runs.
func (o ClusterOptions) tlsConfig(log *slog.Logger) (*tls.Config, error) {
	config := o.TLS.Clone()
	if config == nil && o.CertFile == "" {
		return nil, nil
	}
	if config == nil {
		certificate, err := renew.LoadCertificate(o.CertFile, o.KeyFile, log)
		if err != nil {
			return nil, fmt.Errorf("TLS between nodes: %w", err)
		}
		authorities, err := renew.Authorities(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("TLS between nodes: %w", err)
		}
		config = &tls.Config{GetCertificate: certificate.Get, GetClientCertificate: certificate.GetClient, RootCAs: authorities, ClientCAs: authorities}
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	return config, nil
}

// clusterName reports whether a cluster or a rack may have that name.
func clusterName(name string) bool { return validName(name) && len(name) <= 64 }

// splitAddress splits "host:port". The host of a listener may be empty.
func splitAddress(address string, listener bool) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q: want host:port", address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("%q: want a port from 1 to 65535", address)
	}
	if host == "" && !listener || strings.ContainsAny(host, " /@") {
		return "", 0, fmt.Errorf("%q: want a host", address)
	}
	return host, int(number), nil
}

// serverName returns the name of a node's engine.
func serverName(node int32) string { return "n" + strconv.Itoa(int(node)) }

// nodeOf returns the number of the node whose engine has that name, 0 if it is not such a
// name.
func nodeOf(name string) int32 {
	text, found := strings.CutPrefix(name, "n")
	number, err := strconv.ParseInt(text, 10, 32)
	if !found || err != nil || number < 1 || serverName(int32(number)) != name {
		return 0
	}
	return int32(number)
}

// nodeTag and rackTag are the tags that placements use.
func nodeTag(node int32) string  { return "node:" + strconv.Itoa(int(node)) }
func rackTag(rack string) string { return "rack:" + rack }
