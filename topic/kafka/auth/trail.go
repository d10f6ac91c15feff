package auth

// Trail keeps who did what. Its methods do not wait.
type Trail interface {
	// Follows reports whether all requests of a kind, by its number in the protocol, are recorded; of others, those that
	// are refused.
	Follows(request int16) bool
	// Record takes what a client did, or may not do.
	Record(Act)
}

// Act is a request of a client in the trail.
type Act struct {
	// Principal is who the client is; nil: there are no accounts, or it has not authenticated.
	Principal Principal
	// Host is the client's address.
	Host string
	// Request is the name of the request, and Key its number.
	Request string
	Key     int16
	// Resources are what it names, such as topic:orders: the first 64 of them.
	Resources []string
	Outcome   Outcome
	// Code is the protocol's name of an error; "": there is none.
	Code string
}

// Outcome is what became of a request.
type Outcome int

const (
	// Done means that the request was allowed, and has succeeded.
	Done Outcome = iota
	// Failed means that it was allowed, and has failed for some of the resources at least.
	Failed
	// Refused means that the account has no right to the resource.
	Refused
	// Unauthenticated means that the client has not proved who it is.
	Unauthenticated
)
