// Package api serves the tokens of package access over HTTP: create, list, rotate and revoke, for admins.
//
// # Guarantees
//
//   - Only the answers that create or rotate a token have its secret.
package api
