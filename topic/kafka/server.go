package kafka

import "github.com/sluice-project/sluice/topic"

// Server serves Kafka clients. It is a lifecycle.Service.
type Server struct {
	broker *topic.Broker
}

type connection struct{}
