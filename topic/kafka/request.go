package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// call is one request of a client.
type call struct {
	// client is the client's id, as it says; host where it connects from.
	client, host string
	// software is the client's name and version, if it said so.
	software string
	// size is the length of the request.
	size    int
	session *connection
}

// answer waits for what a request has started, and returns the response; nil
// for a request that is not answered. It runs when all answers before it
// on its connection are on their way. ctx ends with the connection.
type answer func(ctx context.Context) kmsg.Response

// respond is the answer of a request that is done already.
func respond(response kmsg.Response) answer {
	return func(context.Context) kmsg.Response { return response }
}

// request is a kind of request that is served.
type request struct {
	// key is the kind's number; min and max are the versions that are served.
	key, min, max int16
	handle        func(*Server, *call, kmsg.Request) answer
}

// on is the request whose type handle takes. Handle starts it, in the order of
// the connection's requests, and must not wait for anything long: that is for
// the answer.
func on[R kmsg.Request](minVersion, maxVersion int16, handle func(*Server, *call, R) answer) request {
	var kind R
	return request{
		key: kind.Key(), min: minVersion, max: maxVersion,
		handle: func(s *Server, c *call, r kmsg.Request) answer { return handle(s, c, r.(R)) },
	}
}
