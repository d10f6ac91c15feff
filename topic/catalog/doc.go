// Package catalog defines the records of topics, nodes and migrations in the metadata,
// with their keys and how they are read. Broker, groups and migrations share them; each
// is changed with compare-and-set.
//
//   - [Topic]: a topic with its partitions, under "topics/" and its name. A
//     [Partition] names its leader, the leader's epoch, and its replicas. [Names]
//     holds the names of its logs and its snapshot.
//   - [Node]: a node of the cluster, under "nodes/" and its number.
//   - [Migration]: whether a single server still serves its topics, under "moved".
//   - [Import]: the progress of the import of another store's topics into a cluster,
//     under "imports/".
//
// docs/formats describes each format.
package catalog
