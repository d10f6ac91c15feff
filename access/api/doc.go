// Package api serves the tokens of package access over HTTP: create, list, rotate and revoke, for admins; and its quotas: list and set.
//
// # Guarantees
//
//   - Only the answers that create or rotate a token have its secret.
package api
