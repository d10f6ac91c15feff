package natsstore

import (
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/internal/clusterkey"
)

// Connections between engines.
const (
	routeUser = "sluice"
	// routePing is the interval of pings on an idle connection. After routePings pings
	// without an answer the connection is made again. Otherwise a connection whose packets
	// the network has lost would hang for minutes.
	routePing  = 3 * time.Second
	routePings = 3
)

// account is the account that owns our streams.
const account = server.DEFAULT_GLOBAL_ACCOUNT

// join adds the settings of a cluster's node.
func (e *engine) join(settings *server.Options, options ClusterOptions, log *slog.Logger) error {
	if err := setElectionTimers(); err != nil {
		return err
	}
	config, err := options.tlsConfig(log)
	if err != nil {
		return err
	}
	host, port, err := splitAddress(options.Listen, true)
	if err != nil {
		return err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	settings.ServerName = serverName(options.Node)
	settings.Tags.Add(nodeTag(options.Node))
	if options.Rack != "" {
		settings.Tags.Add(rackTag(options.Rack))
	}
	password := clusterkey.Derive(options.Secret, clusterkey.Routes)
	settings.Cluster = server.ClusterOpts{
		Name: options.Name, Host: host, Port: port,
		Username: routeUser, Password: password, AuthTimeout: 5,
		PingInterval: routePing, MaxPingsOut: routePings,
	}
	if options.Advertise != options.Listen {
		settings.Cluster.Advertise = options.Advertise
	}
	if config != nil {
		settings.Cluster.TLSConfig, settings.Cluster.TLSTimeout = config, 5
	}
	// The engine derives the number of nodes for the first start from these.
	for _, peer := range options.Peers {
		settings.Routes = append(settings.Routes, &url.URL{Scheme: "nats", Host: peer, User: url.UserPassword(routeUser, password)})
	}
	e.closeToOthers(settings)
	return nil
}

// closeToOthers sets the listener for clients, without which the engine does not connect to
// other nodes: at a random port of the loopback address, with passwords that only this
// process has.
func (e *engine) closeToOthers(settings *server.Options) {
	password, systemPassword := rand.Text(), rand.Text()
	settings.DontListen = false
	settings.Host, settings.Port = net.IPv4(127, 0, 0, 1).String(), server.RANDOM_PORT
	system := server.NewAccount(server.DEFAULT_SYSTEM_ACCOUNT)
	settings.Accounts, settings.SystemAccount = []*server.Account{system}, system.Name
	settings.Users = []*server.User{
		{Username: "app", Password: password},
		{Username: "sys", Password: systemPassword, Account: system},
	}
	e.login = []nats.Option{nats.UserInfo("app", password)}
	e.systemLogin = []nats.Option{nats.UserInfo("sys", systemPassword)}
}

// leads reports whether this node leads a stream.
func (e *engine) leads(stream string) bool { return e.JetStreamIsStreamLeader(account, stream) }

// members returns the nodes of the cluster whose names the engine knows, and the size of the
// cluster.
func (e *engine) members() (nodes []int32, expected int) {
	info, err := e.Jsz(&server.JSzOptions{})
	if err != nil || info.Meta == nil {
		return nil, 0
	}
	add := func(name string) {
		if node := nodeOf(name); node != 0 && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	add(e.Name())
	add(info.Meta.Leader)
	for _, replica := range info.Meta.Replicas {
		add(replica.Name)
	}
	return nodes, info.Meta.Size
}

// connected returns the nodes that this one has a connection with.
func (e *engine) connected() []int32 {
	routes, err := e.Routez(&server.RoutezOptions{})
	if err != nil {
		return nil
	}
	var nodes []int32
	for _, route := range routes.Routes {
		if node := nodeOf(route.RemoteName); node != 0 && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// peerID returns the engine's id of a node, by which it knows a node whose name it has
// forgotten: the first 8 bytes of a hash, as digits of base 62.
func peerID(node int32) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(serverName(node)))
	id := sum[:8]
	for i, b := range id {
		id[i] = digits[int(b)%len(digits)]
	}
	return string(id)
}
