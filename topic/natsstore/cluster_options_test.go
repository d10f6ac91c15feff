package natsstore

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/clusterkey"
	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func TestClusterOptionsAreChecked(t *testing.T) {
	good := ClusterOptions{Name: "c", Node: 1, Listen: "127.0.0.1:6222", Peers: []string{"127.0.0.1:6222", "b:6222"}, Secret: testSecret}
	if err := (Options{Cluster: &good}).withDefaults().validate(); err != nil {
		t.Fatal(err)
	}
	if good.JoinTimeout != 0 {
		t.Error("the caller's options are changed")
	}
	for want, change := range map[string]func(*ClusterOptions){
		"cluster name":        func(o *ClusterOptions) { o.Name = "a b" },
		"node 0":              func(o *ClusterOptions) { o.Node = 0 },
		"rack":                func(o *ClusterOptions) { o.Rack = "a/b" },
		"secret has 15 bytes": func(o *ClusterOptions) { o.Secret = strings.Repeat("x", 15) },
		"join timeout":        func(o *ClusterOptions) { o.JoinTimeout = -1 },
		"listen address":      func(o *ClusterOptions) { o.Listen = "127.0.0.1" },
		"want a port":         func(o *ClusterOptions) { o.Listen = "127.0.0.1:0" },
		"advertised address":  func(o *ClusterOptions) { o.Advertise = ":6222" },
		"at least one other":  func(o *ClusterOptions) { o.Peers = o.Peers[:1] },
		"address of a peer":   func(o *ClusterOptions) { o.Peers = []string{"b"} },
		"want a host":         func(o *ClusterOptions) { o.Peers = []string{"me@b:6222"} },
		"all three":           func(o *ClusterOptions) { o.CertFile = "cert.pem" },
		"not both":            func(o *ClusterOptions) { o.CertFile, o.KeyFile, o.CAFile, o.TLS = "a", "b", "c", &tls.Config{} },
		"want a certificate":  func(o *ClusterOptions) { o.TLS = &tls.Config{} },
		"RootCAs":             func(o *ClusterOptions) { o.TLS = &tls.Config{Certificates: make([]tls.Certificate, 1)} },
		"no such file":        func(o *ClusterOptions) { o.CertFile, o.KeyFile, o.CAFile = "/no/a", "/no/b", "/no/c" },
		"prove who they are": func(o *ClusterOptions) {
			o.TLS = &tls.Config{Certificates: make([]tls.Certificate, 1), RootCAs: x509.NewCertPool(), ClientCAs: x509.NewCertPool(), InsecureSkipVerify: true} //nolint:gosec // it is refused
		},
	} {
		bad := good
		bad.Peers = slices.Clone(good.Peers)
		change(&bad)
		s, err := Open(t.TempDir(), Options{Cluster: &bad})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q: %v", want, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

func TestNamesOfNodes(t *testing.T) {
	for name, want := range map[string]int32{"n1": 1, "n12": 12, "n0": 0, "n-1": 0, "n01": 0, "m1": 0, "n": 0, "n99999999999": 0} {
		if got := nodeOf(name); got != want {
			t.Errorf("%q is node %d, want %d", name, got, want)
		}
	}
}

func TestADirectoryRemembersItsMode(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 2, nil)
	ns.log(1, "log", 1, 2)
	ns.stop(1)
	ns.stop(2)
	single := t.TempDir()
	s, err := Open(single, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	another, node3 := ns.nodeOptions(1), ns.nodeOptions(1)
	another.Cluster.Name, node3.Cluster.Node = "another", 3
	for name, c := range map[string]struct {
		dir     string
		options Options
		says    string
	}{
		"a single node's in a cluster": {single, ns.nodeOptions(1), "sluice topic migrate"},
		"a cluster's alone":            {ns.dirs[0], Options{}, `"sluice topic, cluster test, node 1, format 1"`},
		"of another cluster":           {ns.dirs[0], another, `want "sluice topic, cluster another, node 1, format 1"`},
		"of another node":              {ns.dirs[0], node3, `want "sluice topic, cluster test, node 3, format 1"`},
	} {
		s, err := Open(c.dir, c.options)
		var format *FormatError
		if !errors.As(err, &format) || !strings.Contains(err.Error(), c.says) || format.Dir != c.dir {
			t.Errorf("%s: %v, want a FormatError with %s", name, err, c.says)
		}
		if err == nil {
			s.Close()
		}
	}
	ns.start(1, 2)
	if _, _, err := ns.log(1, "log").Ends(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStrangersAreRefused starts nodes with another secret, another authority's certificate,
// or no certificate, against a running cluster.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	authority, stranger := newAuthority(t), newAuthority(t)
	ns := newNodes(t, 3, func(o *Options) {
		o.Cluster.CertFile, o.Cluster.KeyFile, o.Cluster.CAFile = authority.files(t, authority)
	})
	ns.start(1, 2, 3)
	ns.waitAlive(3)
	ns.stop(3)
	ns.waitAliveOnly(2)
	strangers := map[string]func(*ClusterOptions){
		"secret":         func(o *ClusterOptions) { o.Secret = "another secret, as long" },
		"no certificate": func(o *ClusterOptions) { o.CertFile, o.KeyFile, o.CAFile = "", "", "" },
		"a stranger's certificate": func(o *ClusterOptions) {
			o.CertFile, o.KeyFile, o.CAFile = stranger.files(t, authority)
		},
		"a stranger's authority": func(o *ClusterOptions) {
			o.CertFile, o.KeyFile, o.CAFile = authority.files(t, stranger)
		},
	}
	t.Run("stranger", func(t *testing.T) {
		node := int32(3)
		for name, change := range strangers {
			node++
			options := ns.nodeOptions(3)
			options.Cluster.Node, options.Cluster.Listen, options.Cluster.JoinTimeout = node, ports.Addrs(t, 1)[0], 3*time.Second
			change(options.Cluster)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, err := Open(filepath.Join(t.TempDir(), "node"), options)
				if err == nil {
					s.Close()
					t.Fatal("it is in the cluster")
				}
				if !strings.Contains(err.Error(), "too few of its nodes within 3s") {
					t.Errorf("open: %v", err)
				}
				if got := ns.node(1).Cluster().Alive(); slices.Max(got) > 2 {
					t.Errorf("alive are %v", got)
				}
			})
		}
	})
	ns.start(3)
	ns.waitAlive(3)
}

// Neither the secret itself nor a key that is derived from it for something else connects as a
// node.
func TestPasswordOfRoutes(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 2, nil)
	for password, want := range map[string]string{
		clusterkey.Derive(testSecret, clusterkey.Routes):    "PONG",
		clusterkey.Derive(testSecret, clusterkey.Migration): "-ERR 'Authorization Violation'",
		testSecret: "-ERR 'Authorization Violation'",
	} {
		conn, err := net.Dial("tcp", ns.listen[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "CONNECT {\"user\":%q,\"pass\":%q,\"name\":\"n9\",\"cluster\":\"test\"}\r\nPING\r\n", routeUser, password); err != nil {
			t.Fatal(err)
		}
		got := ""
		for lines := bufio.NewScanner(conn); got == "" && lines.Scan(); {
			if line := lines.Text(); strings.HasPrefix(line, "PONG") || strings.HasPrefix(line, "-ERR") {
				got = line
			}
		}
		if got != want {
			t.Errorf("with %s: %q, want %s", password, got, want)
		}
		conn.Close()
	}
}

// TestOpenSaysForWhomItWaits starts one of three nodes.
func TestOpenSaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	ns := newNodes(t, 3, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(sayer{"waiting for more of the cluster's nodes", cancel}, nil))
	})
	s, err := OpenCluster(ctx, ns.dirs[0], ns.nodeOptions(1))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v, want that it says for whom it waits, and is canceled then", err)
	}
	if err == nil {
		s.Close()
	}
}

// sayer is a log that calls a function when it says something.
type sayer struct {
	what string
	said func()
}

func (s sayer) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.what) {
		s.said()
	}
	return len(line), nil
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key: key}
	a.certificate.Raw = a.sign(t, a.certificate, key)
	return a
}

func (a *authority) sign(t *testing.T, certificate *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	data, err := x509.CreateCertificate(rand.Reader, certificate, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// files writes a node's certificate by this authority, its key, and the authority that it
// trusts.
func (a *authority) files(t *testing.T, trusted *authority) (cert, key, ca string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, own)
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", data), write("key.pem", "PRIVATE KEY", secret),
		write("ca.pem", "CERTIFICATE", trusted.certificate.Raw)
}
