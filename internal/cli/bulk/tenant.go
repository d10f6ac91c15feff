package bulk

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

func newTenantCommand(connect connector) *cobra.Command {
	var given wire.Tenant
	command := &cobra.Command{
		Use:   "tenant NAME",
		Short: "Show or set the share, the limits and the quotas of a tenant",
		Long: `Show the settings of a tenant, and what it has stored, after setting those that are given; others stay. Limits by
key are set over HTTP.

Quotas bound what the tenant has stored: its unfinished actions, and all their jobs and
bytes of payloads. Without one, that of the server's settings holds.`,
		Example: `  sluice bulk tenant acme
  sluice bulk tenant acme --weight 2 --rps 50 --concurrency 100
  sluice bulk tenant acme --max-actions 100 --max-jobs 1000000 --max-bytes 1073741824
  sluice bulk tenant acme --max-jobs 0`,
		Args: exit.One("give the name of one tenant, such as acme"),
	}
	flags := command.Flags()
	flags.Float64Var(&given.Weight, "weight", 1, "the tenant's share relative to other tenants")
	flags.Float64Var(&given.RequestsPerSecond, "rps", 0, "the most attempts started per second; 0 for no limit")
	flags.IntVar(&given.Concurrency, "concurrency", 0, "the most attempts in flight; 0 for no limit")
	flags.Int64Var(&given.MaxActions, "max-actions", 0, "the most unfinished actions; 0 for the server's default")
	flags.Int64Var(&given.MaxJobs, "max-jobs", 0, "the most jobs of unfinished actions; 0 for the server's default")
	flags.Int64Var(&given.MaxBytes, "max-bytes", 0, "the most `bytes` of payloads of unfinished actions; 0 for the\nserver's default")
	return onServer(connect, command, func(ctx context.Context, r *session, args []string) error {
		tenant, err := r.server.Tenant(ctx, args[0])
		if err != nil {
			return err
		}
		changed := false
		for flag, set := range map[string]func(){
			"weight":      func() { tenant.Weight = given.Weight },
			"rps":         func() { tenant.RequestsPerSecond = given.RequestsPerSecond },
			"concurrency": func() { tenant.Concurrency = given.Concurrency },
			"max-actions": func() { tenant.MaxActions = given.MaxActions },
			"max-jobs":    func() { tenant.MaxJobs = given.MaxJobs },
			"max-bytes":   func() { tenant.MaxBytes = given.MaxBytes },
		} {
			if flags.Changed(flag) {
				changed = true
				set()
			}
		}
		if changed {
			if tenant, err = r.server.SetTenant(ctx, args[0], tenant); err != nil {
				return err
			}
		}
		return r.Tell(&tenant, "%s: %s", args[0], spellTenant(&tenant))
	})
}

// spellTenant says what is set of a tenant.
func spellTenant(t *wire.Tenant) string {
	parts := []string{fmt.Sprintf("weight %g", t.Weight)}
	if t.RequestsPerSecond > 0 {
		parts = append(parts, fmt.Sprintf("%g attempts per second", t.RequestsPerSecond))
	}
	if t.Concurrency > 0 {
		parts = append(parts, spellConcurrency(t.Concurrency))
	}
	if len(t.Keys) > 0 {
		parts = append(parts, term.Counted(int64(len(t.Keys)), "limit")+" by key")
	}
	for _, quota := range []struct {
		most int64
		noun string
	}{{t.MaxActions, "unfinished action"}, {t.MaxJobs, "job"}, {t.MaxBytes, "byte"}} {
		if quota.most > 0 {
			parts = append(parts, "at most "+term.Counted(quota.most, quota.noun))
		}
	}
	text := strings.Join(parts, ", ")
	if has := t.Stored; has != nil {
		text += fmt.Sprintf("; stored: %s, %s, %s", term.Counted(has.Actions, "unfinished action"), term.Counted(has.Jobs, "job"), term.Counted(has.Bytes, "byte"))
	}
	return text
}
