// Package clients tests the real binary with Kafka clients that the project does
// not use itself: sarama and kafka-go, kafkajs in Node.js, and librdkafka in C.
// It is a module of its own, so that none of them reaches users.
//
// Each client tells the same story on a server of its own: records with keys,
// headers and null values through every codec it has; a consumer group that
// reads on where it committed and shares its work; seeking by offset and time;
// administration; a view over 20,000 hidden records; delayed records. What a
// client cannot do is in docs/topic/clients.md. With SLUICE_NODES=3 each server is a
// cluster of three nodes that keep three replicas of all.
package clients
