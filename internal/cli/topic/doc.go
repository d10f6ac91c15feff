// Package topic has the commands of "sluice topic". Most speak the Kafka protocol with any broker;
// a few use a server's HTTP API.
package topic
