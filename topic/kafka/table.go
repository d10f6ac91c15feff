package kafka

// requests are the kinds that are served, in the order of their numbers.
var requests = []request{}
