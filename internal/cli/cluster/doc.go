// Package cluster has the commands of "sluice cluster", which ask a node's HTTP API
// about the nodes of its cluster.
package cluster
