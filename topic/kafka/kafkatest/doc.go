// Package kafkatest has requests and answers of the Kafka protocol for tests of every kind of request.
package kafkatest
