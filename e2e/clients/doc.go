// Package clients tests the real binary with Kafka clients that the project does not use itself:
// sarama, kafka-go and confluent-kafka-go, kafkajs in Node.js, librdkafka in C, and kafka-python and confluent-kafka. It is a module of its
// own, so that none of them reaches users.
//
// Each client does the same on a server of its own: records with keys, headers and null values
// through every codec it has; a consumer group that resumes where it committed and shares its
// partitions; seeking by offset and time; administration; a view over 20,000 hidden records;
// delayed records. librdkafka does administration and transactions only: kcat, in e2e, uses the same library. confluent-kafka-go, which
// brings a newer one, manages accounts and reads in groups of the consumer protocol. Those of Python produce, read in a group and administer.
// Those that can manage users and access lists of a server with accounts.
// docs/topic/clients.md lists what a client does not support. With SLUICE_NODES=3 the servers of tests of
// Kafka clients are clusters of three nodes with three replicas; the other tests have one server only, and
// are not run so.
package clients
