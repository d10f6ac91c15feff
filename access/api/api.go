package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// Token is a token in the API.
type Token struct {
	Name    string     `json:"name"`
	ID      string     `json:"id" doc:"Another one for each token, also of a name that was used before."`
	Roles   []string   `json:"roles" nullable:"false"`
	Tenants []string   `json:"tenants,omitempty" nullable:"false"`
	Types   []string   `json:"types,omitempty" nullable:"false"`
	Rooms   []string   `json:"rooms,omitempty" nullable:"false"`
	Topics  []string   `json:"topics,omitempty" nullable:"false"`
	Groups  []string   `json:"groups,omitempty" nullable:"false"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"`
}

// NewToken is a token to create.
type NewToken struct {
	Name    string     `json:"name" maxLength:"64" pattern:"^[a-z0-9._-]+$" doc:"Unique. It is the user name for SCRAM too."`
	Roles   []string   `json:"roles" nullable:"false" minItems:"1" maxItems:"8" doc:"Any of admin, operator, viewer, submitter, worker, shop, producer, consumer."`
	Tenants []string   `json:"tenants,omitempty" nullable:"false" maxItems:"100" doc:"What a submitter is limited to: names, or prefixes that end with *. Default: all."`
	Types   []string   `json:"types,omitempty" nullable:"false" maxItems:"100" doc:"What a worker is limited to."`
	Rooms   []string   `json:"rooms,omitempty" nullable:"false" maxItems:"100" doc:"What a shop is limited to."`
	Topics  []string   `json:"topics,omitempty" nullable:"false" maxItems:"100" doc:"What a producer or a consumer is limited to."`
	Groups  []string   `json:"groups,omitempty" nullable:"false" maxItems:"100" doc:"What a consumer is limited to."`
	Expires *time.Time `json:"expires,omitempty" doc:"When the token ends. Default: never."`
}

// NewSecret is a token with its secret.
type NewSecret struct {
	Token
	Secret string `json:"secret" doc:"Shown once: nobody can read it later."`
}

// Tokens are all tokens, in the order of their creation.
type Tokens struct {
	Tokens []Token `json:"tokens" nullable:"false"`
}

type object[T any] struct{ Body T }

type inName struct {
	Name string `path:"name" maxLength:"64" pattern:"^[a-z0-9._-]+$" doc:"The name of a token."`
}

// server has what the operations share.
type server struct{ accounts *access.Accounts }

// Register adds the operations of tokens and quotas to an API. Without accounts, which are nil then, they say how to have some.
func Register(to *edge.API, accounts *access.Accounts, logger *slog.Logger) {
	s := &server{accounts}
	p := to.Part("access", edge.PartOptions{Logger: logger, Refuse: refuse})
	edge.Register(p, edge.Operation{ID: "create-token", Route: "POST /v1/tokens", Summary: "Create a token", Status: http.StatusCreated}, on(s, s.create))
	edge.Register(p, edge.Operation{ID: "list-tokens", Route: "GET /v1/tokens", Summary: "All tokens, without their secrets"}, on(s, s.list))
	edge.Register(p, edge.Operation{
		ID: "rotate-token", Route: "POST /v1/tokens/{name}/rotate", Summary: "Give a token a new secret",
		Description: "The secret before ends at once here, and within 5 seconds at all instances.",
	}, on(s, s.rotate))
	edge.Register(p, edge.Operation{
		ID: "revoke-token", Route: "DELETE /v1/tokens/{name}", Summary: "Revoke a token", Status: http.StatusNoContent,
		Description: "It ends at once here, and within 5 seconds at all instances, with its open connections.",
	}, on(s, s.revoke))
	registerQuotas(p, s)
}

// on refuses the requests of a handler if accounts are off.
func on[I, O any](s *server, handler func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	if s.accounts != nil {
		return handler
	}
	return func(context.Context, *I) (*O, error) { return nil, errOff }
}

var errOff = edge.Refuse(http.StatusConflict, problem.Conflict, "this server has no accounts: set access.admin_token, or access.admin_token_file, and start it again")

func (s *server) create(ctx context.Context, in *object[NewToken]) (*object[NewSecret], error) {
	p := access.Principal{
		Name: in.Body.Name, Tenants: in.Body.Tenants, Types: in.Body.Types, Rooms: in.Body.Rooms, Topics: in.Body.Topics, Groups: in.Body.Groups,
	}
	for _, role := range in.Body.Roles {
		p.Roles = append(p.Roles, access.Role(role))
	}
	if in.Body.Expires != nil {
		p.Expires = *in.Body.Expires
	}
	audit.About(ctx, "token:"+p.Name)
	return answer(s.accounts.Create(ctx, p))
}

func (s *server) list(context.Context, *struct{}) (*object[Tokens], error) {
	out := &object[Tokens]{Body: Tokens{Tokens: []Token{}}}
	for _, token := range s.accounts.List() {
		out.Body.Tokens = append(out.Body.Tokens, view(token))
	}
	return out, nil
}

func (s *server) rotate(ctx context.Context, in *inName) (*object[NewSecret], error) {
	return answer(s.accounts.Rotate(ctx, in.Name))
}

func (s *server) revoke(ctx context.Context, in *inName) (*struct{}, error) {
	return nil, s.accounts.Revoke(ctx, in.Name)
}

// answer returns a token with its secret, or the error.
func answer(token access.Token, secret string, err error) (*object[NewSecret], error) {
	if err != nil {
		return nil, err
	}
	return &object[NewSecret]{Body: NewSecret{view(token), secret}}, nil
}

func view(t access.Token) Token {
	v := Token{
		Name: t.Name, ID: t.ID, Tenants: t.Tenants, Types: t.Types, Rooms: t.Rooms, Topics: t.Topics, Groups: t.Groups, Created: t.Created,
	}
	for _, role := range t.Roles {
		v.Roles = append(v.Roles, string(role))
	}
	if !t.Expires.IsZero() {
		v.Expires = &t.Expires
	}
	return v
}

// refuse returns the problem of an error. Errors of the store are faults of the server.
func refuse(err error) *edge.Error {
	if invalid, ok := errors.AsType[*access.InvalidError](err); ok {
		return edge.Invalid(invalid.Field, invalid.Why)
	}
	switch {
	case errors.Is(err, access.ErrNotFound):
		return edge.Refuse(http.StatusNotFound, problem.NotFound, access.Explain(err))
	case errors.Is(err, access.ErrExists), errors.Is(err, access.ErrFull):
		return edge.Refuse(http.StatusConflict, problem.Conflict, access.Explain(err))
	}
	return edge.Refuse(http.StatusServiceUnavailable, problem.Unavailable, "the store of tokens does not answer now: the change may have been made").RetryAfter(time.Second).Fault(err)
}
