package topic

// Groups coordinates the consumer groups of a broker.
type Groups struct{}
