package bulk

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

func newTargetCommand(connect connector) *cobra.Command {
	var rate, prefix string
	var concurrency int
	var tenants []string
	command := &cobra.Command{
		Use:   "target NAME",
		Short: "Show or set the limits of a target, and where it is",
		Long: `Show the settings of a target, after setting those that are given. A target has the name
that actions use: by default the host and port of its URL. It need not exist yet.

With --url-prefix the jobs of actions that name the target stay below that URL. Secrets
that sign them are set over HTTP only: others can read command lines.

With --rps auto the rate follows the target's answers: it rises while the target keeps
up, and falls when the target throttles or slows down.`,
		Example: `  sluice bulk target api.example.com:443
  sluice bulk target api.example.com:443 --rps auto
  sluice bulk target api.example.com:443 --rps 100 --concurrency 20
  sluice bulk target api.example.com:443 --rps 0
  sluice bulk target billing --url-prefix https://billing.example.com/hooks --tenant acme,shop`,
		Args: exit.One("give the name of one target, such as api.example.com:443"),
	}
	command.Flags().StringVar(&rate, "rps", "", "the most attempts started per second: a number, 0 for no\nlimit, or auto")
	command.Flags().IntVar(&concurrency, "concurrency", 0, "the most attempts in flight; 0 for no limit")
	command.Flags().StringVar(&prefix, "url-prefix", "", "the `URL` that the target's requests stay below; empty: any URL")
	command.Flags().StringSliceVar(&tenants, "tenant", nil, "the only `tenants` that may use the target; empty: all")
	return onServer(connect, command, func(ctx context.Context, r *session, args []string) error {
		limits, err := r.server.Target(ctx, args[0])
		if err != nil {
			return err
		}
		setRate, setConcurrency := command.Flags().Changed("rps"), command.Flags().Changed("concurrency")
		if setRate {
			if limits.RequestsPerSecond, err = parseRate(rate); err != nil {
				return err
			}
		}
		if setConcurrency {
			if limits.Concurrency = concurrency; concurrency < 0 {
				return exit.Usage("--concurrency: %d: want at least 1, or 0 for no limit", concurrency)
			}
		}
		setPlace := command.Flags().Changed("url-prefix") || command.Flags().Changed("tenant")
		if command.Flags().Changed("url-prefix") {
			limits.URLPrefix = prefix
		}
		if command.Flags().Changed("tenant") {
			limits.Tenants = tenants
		}
		if setRate || setConcurrency || setPlace {
			limits.FoundRequestsPerSecond = 0 // The found rate is not a setting.
			if limits, err = r.server.SetTarget(ctx, args[0], limits); err != nil {
				return err
			}
		}
		return r.Tell(&limits, "%s: %s, %s%s", args[0], spellRate(limits), spellConcurrency(limits.Concurrency), spellPlace(limits))
	})
}

// parseRate parses the rate of a flag.
func parseRate(text string) (wire.Rate, error) {
	if text == "auto" {
		return wire.Auto, nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 0 && rate <= wire.MaxRate) {
		return 0, exit.Usage("--rps: %q: want a number, 0 for no limit, or auto", text)
	}
	return wire.Rate(rate), nil
}

func spellRate(limits wire.TargetLimits) string {
	switch limits.RequestsPerSecond {
	case wire.Auto:
		return fmt.Sprintf("auto, at present %.4g attempts per second", limits.FoundRequestsPerSecond)
	case 0:
		return "no limit of its rate"
	default:
		return fmt.Sprintf("%g attempts per second", float64(limits.RequestsPerSecond))
	}
}

func spellConcurrency(most int) string {
	if most == 0 {
		return "no limit of its concurrency"
	}
	return fmt.Sprintf("at most %d in flight", most)
}

// spellPlace returns where a target is and for whom; empty where actions say so.
func spellPlace(limits wire.TargetLimits) (text string) {
	if limits.URLPrefix != "" {
		text = ", below " + term.Printable(limits.URLPrefix)
	}
	if len(limits.Tenants) > 0 {
		text += ", for " + term.Printable(strings.Join(limits.Tenants, ", ")) + " only"
	}
	if limits.SecretCount > 0 {
		text += ", signed with " + term.Counted(int64(limits.SecretCount), "secret") + " of its own"
	}
	return text
}
