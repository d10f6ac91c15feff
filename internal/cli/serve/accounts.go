package serve

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/filestore"
	"github.com/sluice-project/sluice/access/jwks"
	"github.com/sluice-project/sluice/access/metastore"
	"github.com/sluice-project/sluice/access/redisstore"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// accounts are the tokens of this process, or of all that share its state.
type accounts struct {
	part
	// known is nil if accounts are off.
	known *access.Accounts
	// trail has what was done and refused, also without accounts.
	trail trail
}

// openAccounts opens the store of tokens: where the state of rooms and bulk is if that is in Redis, in the metadata of
// topics if this is a node of a cluster, and otherwise in the data directory. Those who share it share the rates of quotas too, of
// whatever kind. Topics are nil if they are off.
func openAccounts(ctx context.Context, settings *config.Config, topics topicStore, log *slog.Logger) (*accounts, error) {
	opened := &accounts{part: *noPart()}
	var err error
	if opened.trail, err = openTrail(settings, log); err != nil {
		return nil, err
	}
	if !settings.Access.On() {
		return opened, nil
	}
	var store access.Store
	var exchange access.Exchange
	switch {
	case !settings.State.IsOff() && !settings.State.IsEmbedded():
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		redis, err := redisstore.Open(ctx, redisstore.Options{URL: settings.State.URL(), Logger: log})
		if err != nil {
			return nil, fmt.Errorf("open tokens at %s: %w", settings.State, err)
		}
		store, exchange, opened.close = redis, redis, redis.Close
	case settings.Cluster.On():
		store = metastore.New(topics.Meta())
		if node, is := topics.(*natsstore.Store); is { // a nil one would be an exchange
			exchange = node
		}
	default:
		file := filestore.New(settings.DataDir)
		store, opened.checkpoint = file, file.CopyTo
	}
	admin, err := settings.Access.Token()
	if err != nil {
		return nil, fmt.Errorf("access.admin_token_file: %w", err)
	}
	options, err := accountOptions(&settings.Access, log)
	if err != nil {
		return nil, err
	}
	options.Exchange = exchange
	if opened.known, err = access.New(store, admin, options); err != nil {
		return nil, err
	}
	opened.services = []lifecycle.Service{opened.known}
	opened.secrets = func(settings *config.Config) error {
		admin, err := settings.Access.Token()
		if err != nil {
			return err
		}
		grants, err := settings.Access.ParsedGrants()
		if err != nil {
			return fmt.Errorf("access.grants: %w", err)
		}
		opened.known.SetGrants(grants)
		return opened.known.SetAdmin(admin)
	}
	return opened, nil
}

// accountOptions returns the options of accounts: who is known without a token of their own, and what they may do.
func accountOptions(settings *config.Access, log *slog.Logger) (options access.Options, err error) {
	options.Logger, options.RequestsPerSecond = log, settings.RequestsPerSecond
	if options.Grants, err = settings.ParsedGrants(); err != nil {
		return options, fmt.Errorf("access.grants: %w", err)
	}
	if options.Names, err = access.ParseCertNames(settings.CertNameRules); err != nil {
		return options, fmt.Errorf("access.cert_name_rules: %w", err)
	}
	if of := &settings.JWT; of.Issuer != "" {
		options.Provider = access.NewProvider(access.ProviderOptions{
			Issuer: of.Issuer, Audience: of.Audience, Keys: jwks.New(of.Keys, log), NameClaim: of.NameClaim, GrantClaim: of.GrantClaim,
		})
	}
	return options, nil
}
