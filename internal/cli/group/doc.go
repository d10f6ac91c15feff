// Package group has the commands of "sluice group", which speak the Kafka protocol
// about consumer groups.
package group
