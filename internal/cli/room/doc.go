// Package room has the commands of "sluice room", which ask a server about waiting
// rooms.
package room
