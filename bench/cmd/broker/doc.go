// Command broker is sluice's topic part as a process of its own: the store, the
// broker and the Kafka listener, and nothing else.
package main
