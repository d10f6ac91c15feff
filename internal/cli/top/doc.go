// Package top is the command "sluice top": the rates and queues of a running server, by tenant, job
// type, room, topic and consumer group.
//
// It reads /metrics twice and shows what changed in between. A sample holds the metrics of one
// moment, a Report is computed from two of them, and print.go writes it for people.
package top
