package audit

import "context"

type contextKey struct{}

// With returns a context whose handlers add to names by About. It is of one goroutine.
func With(ctx context.Context, names *[]string) context.Context {
	return context.WithValue(ctx, contextKey{}, names)
}

// About says what a request names in its body, such as "tenant:acme". Without a trail it does nothing.
func About(ctx context.Context, names ...string) {
	if of, ok := ctx.Value(contextKey{}).(*[]string); ok {
		*of = append(*of, names...)
	}
}
