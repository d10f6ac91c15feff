// Package proxytest runs the proxies of examples/proxies in front of a site and of a gate, for
// tests. Their files are used as they are, with other addresses.
package proxytest
