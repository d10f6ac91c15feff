package config

import "net"

// KnownHosts returns the names that requests over HTTP may ask for, besides addresses
// and localhost: those that are set, and those by which others are told to connect.
func (c *Config) KnownHosts() []string {
	names := append([]string(nil), c.HTTPHosts...)
	addresses := []string{c.Cluster.AdvertiseHTTP}
	for _, listener := range c.HTTPListeners() {
		addresses = append(addresses, listener.Addr)
	}
	for _, listener := range c.Listeners() {
		addresses = append(addresses, listener.Advertise)
	}
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			names = append(names, host)
		}
	}
	return names
}
