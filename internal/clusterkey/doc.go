// Package clusterkey derives keys from the secret that the nodes of a cluster share.
//
// # Nouns
//
//   - A [Use] is what a key is for.
//   - [Derive] returns the key for a use.
//
// # Guarantees
//
//   - Each use has a key of its own: whoever learns one, from the network or from a log,
//     can do nothing else with it, and learns nothing of a random secret.
package clusterkey
