// Package metastore keeps the document of package access in the metadata of topics, for all nodes of a cluster.
//
// # Guarantees
//
//   - A read includes every write that was acknowledged before, by any node. Without a majority of the nodes both
//     fail.
package metastore
