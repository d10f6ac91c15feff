package kafka

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// call is one request of a client.
type call struct {
	// key is the kind's number.
	key int16
	// client is the client's id; host is its address.
	client, host string
	// software is the client's name and version, if it has sent them.
	software string
	// size is the length of the request.
	size    int
	session *connection
	// principal is who the client is; nil: there are no accounts, or it has not authenticated.
	principal auth.Principal
	// noPlace is why the request may not make a group.
	noPlace error
	// memory is that of the answer.
	memory   *allowance
	exchange *exchange
	// inflated is the size of all messages that were decompressed for the request.
	inflated int
}

// answer waits for the work that a request has started and returns the response, nil for a
// request without one. It runs after all earlier answers of the connection were sent. ctx
// ends with the connection.
type answer func(ctx context.Context) kmsg.Response

// respond returns the answer of a request that is already handled.
func respond(response kmsg.Response) answer {
	return func(context.Context) kmsg.Response { return response }
}

// request is a supported kind of request.
type request struct {
	// key is the kind's number; min and max are the supported versions.
	key, min, max int16
	handle        func(*Server, *call, kmsg.Request) answer
}

// on returns a request of the type that handle takes. handle starts requests in the connection's
// order and must not block; the answer waits.
func on[R kmsg.Request](minVersion, maxVersion int16, handle func(*Server, *call, R) answer) request {
	var kind R
	return request{
		key: kind.Key(), min: minVersion, max: maxVersion,
		handle: func(s *Server, c *call, r kmsg.Request) answer {
			if name := makes(r); name != "" && c.needsPlace(name) {
				return func(ctx context.Context) kmsg.Response {
					c.noPlace = s.broker.AdmitGroup(ctx, name, c.owner())
					return handle(s, c, r.(R))(ctx)
				}
			}
			return handle(s, c, r.(R))
		},
	}
}

// once remembers what a request has named. A name that it repeats is answered once, so
// that what exists bounds an answer, and not how often the request names it.
type once[K comparable] map[K]struct{}

// first reports whether a request names something for the first time.
func (o once[K]) first(name K) bool {
	_, before := o[name]
	o[name] = struct{}{}
	return !before
}

// distinct returns names or numbers without their repeats. It sorts them where they are, and so needs
// no memory.
func distinct[T cmp.Ordered](names []T) []T {
	slices.Sort(names)
	return slices.Compact(names)
}

// partitionName names a partition that exists. Others are not remembered, since a request can name any
// number of them.
type partitionName struct {
	topic  *broker.Topic
	number int32
}
