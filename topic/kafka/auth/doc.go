// Package auth authenticates Kafka clients, and declares what a server asks about their accounts.
//
//   - [Accounts] knows the accounts, [Principal] is one of them, a [Resource] is what it has rights to.
//   - A [Login] is an authentication by one of the mechanisms of SASL.
//
// It is pure: no I/O, no clock.
package auth
