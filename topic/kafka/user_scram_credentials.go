package kafka

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// scramMechanisms are the mechanisms by their numbers in the protocol.
var scramMechanisms = map[int8]string{1: auth.ScramSHA256, 2: auth.ScramSHA512}

// scramCost is the memory of a described user beside its name.
const scramCost = 128

var errNoAccounts = fail(kerr.SecurityDisabled, "the server has no accounts: set access.admin_token to have some")

// manager returns what changes accounts, if the client may send the request.
func (c *call) manager() (auth.Manager, error) {
	if err := c.authorize(auth.Cluster, ""); err != nil {
		return nil, err
	}
	if c.session.server.options.Accounts == nil {
		return nil, errNoAccounts
	}
	return c.session.server.options.Accounts, nil
}

// DescribeUserScramCredentials: version 0.
//
// Answers the mechanisms and iterations of users, all if the list is null or empty. A user that does not exist has
// RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE. Without accounts the answer is SECURITY_DISABLED.
func (s *Server) describeUserSCRAMCredentials(c *call, r *kmsg.DescribeUserSCRAMCredentialsRequest) answer {
	return func(context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
		manager, err := c.manager()
		if err != nil {
			response.ErrorCode, response.ErrorMessage = s.outcome("describe users", err)
			return response
		}
		known := map[string]map[string]int{}
		for _, user := range manager.Users() {
			known[user.Name] = user.Iterations
			if len(r.Users) == 0 {
				response.Results = append(response.Results, s.describeUser(c, user.Name, user.Iterations, nil))
			}
		}
		named := func(u *kmsg.DescribeUserSCRAMCredentialsRequestUser) string { return u.Name }
		again, seen := twice(r.Users, named), once[string]{}
		for i := range r.Users {
			name := r.Users[i].Name
			iterations, has := known[name]
			switch {
			case !seen.first(name):
				continue
			case again[name]:
				err = errUserTwice
			case !has:
				err = errNoUser
			default:
				err = nil
			}
			response.Results = append(response.Results, s.describeUser(c, name, iterations, err))
		}
		return response
	}
}

var (
	errUserTwice = fail(kerr.DuplicateResource, "the request names the user more than once")
	errNoUser    = fail(kerr.ResourceNotFound, "no user of this name has credentials")
)

// describeUser describes one user, or says why not.
func (s *Server) describeUser(c *call, name string, iterations map[string]int, err error) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	described := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	described.User = name
	if err == nil {
		err = c.memory.add(int64(len(name)) + scramCost)
	}
	if err != nil {
		described.ErrorCode, described.ErrorMessage = s.outcome("describe users", err)
		return described
	}
	for number := int8(1); int(number) <= len(scramMechanisms); number++ {
		if n, has := iterations[scramMechanisms[number]]; has {
			described.CredentialInfos = append(described.CredentialInfos,
				kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo{Mechanism: number, Iterations: int32(n)})
		}
	}
	return described
}

// AlterUserScramCredentials: version 0.
//
// Sets and removes credentials, those of one user all or not at all, and answers when that is durable. Clients send the
// salted password, never the password. Errors of a user: UNACCEPTABLE_CREDENTIAL with what would be right,
// UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE for a mechanism that is named twice, RESOURCE_NOT_FOUND for a credential
// to remove that does not exist. When there is no place for more, all have POLICY_VIOLATION, and nothing has changed. A request has at most 2,000 changes.
func (s *Server) alterUserSCRAMCredentials(c *call, r *kmsg.AlterUserSCRAMCredentialsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
		manager, err := c.manager()
		if n := len(r.Deletions) + len(r.Upsertions); err == nil && n > maxScramChanges {
			err = refuse(kerr.InvalidRequest, "%d changes: want at most %d in a request", n, maxScramChanges)
		}
		if err != nil {
			response.Results = s.refuseChanges(r, err)
			return response
		}
		users, changes, refused := scramChanges(r)
		for _, name := range users {
			c.about("user:", name)
		}
		err = changeUsers(ctx, manager, changes, refused)
		for _, name := range users {
			result := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
			result.User = name
			why := cmp.Or(err, refused[name])
			if errors.Is(why, auth.ErrInvalid) {
				why = fail(kerr.UnacceptableCredential, why.Error())
			}
			result.ErrorCode, result.ErrorMessage = s.outcome("alter users", why)
			response.Results = append(response.Results, result)
		}
		return response
	}
}

// maxScramChanges is the most changes of one request.
const maxScramChanges = 2000

// refuseChanges returns the outcome of a request none of whose changes is made.
func (s *Server) refuseChanges(r *kmsg.AlterUserSCRAMCredentialsRequest, err error) []kmsg.AlterUserSCRAMCredentialsResponseResult {
	results := make([]kmsg.AlterUserSCRAMCredentialsResponseResult, len(r.Deletions)+len(r.Upsertions))
	number, text := s.outcome("alter users", err)
	for i := range results {
		results[i].ErrorCode, results[i].ErrorMessage = number, text
	}
	for i := range r.Deletions {
		results[i].User = r.Deletions[i].Name
	}
	for i := range r.Upsertions {
		results[len(r.Deletions)+i].User = r.Upsertions[i].Name
	}
	return results
}

// changeUsers makes the changes of the users that are not refused, and adds those that are then.
func changeUsers(ctx context.Context, manager auth.Manager, changes []auth.ScramChange, refused map[string]error) error {
	changes = slices.DeleteFunc(changes, func(change auth.ScramChange) bool { return refused[change.User] != nil })
	if len(changes) == 0 {
		return nil
	}
	more, err := manager.ChangeUsers(ctx, changes)
	maps.Copy(refused, more)
	return err
}

// scramChanges returns the users of a request, in its order, their changes, and which users are refused by the request
// alone.
func scramChanges(r *kmsg.AlterUserSCRAMCredentialsRequest) (users []string, changes []auth.ScramChange, refused map[string]error) {
	refused = map[string]error{}
	type credential struct{ user, mechanism string }
	seen, seenUsers := once[credential]{}, once[string]{}
	add := func(number int8, change auth.ScramChange) {
		change.Mechanism = scramMechanisms[number]
		if seenUsers.first(change.User) {
			users = append(users, change.User)
		}
		switch {
		case change.Mechanism == "":
			refused[change.User] = refuse(kerr.UnsupportedSaslMechanism, "mechanism %d: want 1, SCRAM-SHA-256, or 2, SCRAM-SHA-512", number)
		case !seen.first(credential{change.User, change.Mechanism}):
			refused[change.User] = fail(kerr.DuplicateResource, "the request changes a credential of the user more than once")
		}
		changes = append(changes, change)
	}
	for _, of := range r.Deletions {
		add(of.Mechanism, auth.ScramChange{User: of.Name, Remove: true})
	}
	for _, of := range r.Upsertions {
		add(of.Mechanism, auth.ScramChange{User: of.Name, Iterations: int(of.Iterations), Salt: of.Salt, Salted: of.SaltedPassword})
	}
	return users, changes, refused
}
