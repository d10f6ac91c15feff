// Package brokers connects commands to Kafka brokers: the flags --brokers and --json, tokens, a client with
// retries, and places in a topic (start, end, an offset, a time).
package brokers
