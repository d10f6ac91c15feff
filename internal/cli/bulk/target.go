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
	var given targetFlags
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
  sluice bulk target api.example.com:443 --rps 50 --pacing smooth
  sluice bulk target api.example.com:443 --rps 0
  sluice bulk target billing --url-prefix https://billing.example.com/hooks --tenant acme,shop`,
		Args: exit.One("give the name of one target, such as api.example.com:443"),
	}
	command.Flags().StringVar(&given.rate, "rps", "", "the most attempts started per second: a number, 0 for no\nlimit, or auto")
	command.Flags().IntVar(&given.concurrency, "concurrency", 0, "the most attempts in flight; 0 for no limit")
	command.Flags().StringVar(&given.pacing, "pacing", "", "how the rate is spread: within each `window` at any time, or\nsmooth: any span of a second holds at most the rate")
	command.Flags().StringVar(&given.prefix, "url-prefix", "", "the `URL` that the target's requests stay below; empty: any URL")
	command.Flags().StringSliceVar(&given.tenants, "tenant", nil, "the only `tenants` that may use the target; empty: all")
	return onServer(connect, command, func(ctx context.Context, r *session, args []string) error {
		limits, err := r.server.Target(ctx, args[0])
		if err != nil {
			return err
		}
		set, err := given.apply(command.Flags().Changed, &limits)
		if err != nil {
			return err
		}
		if set {
			limits.FoundRequestsPerSecond = 0 // The found rate is not a setting.
			if limits, err = r.server.SetTarget(ctx, args[0], limits); err != nil {
				return err
			}
		}
		return r.Tell(&limits, "%s: %s, %s%s", args[0], spellRate(limits), spellConcurrency(limits.Concurrency), spellPlace(limits))
	})
}

// targetFlags are the settings of a target that a command line gives.
type targetFlags struct {
	rate, pacing, prefix string
	concurrency          int
	tenants              []string
}

// apply changes the settings whose flags are given, and reports whether any is.
func (f *targetFlags) apply(given func(flag string) bool, limits *wire.TargetLimits) (changed bool, err error) {
	for flag, set := range map[string]func(){
		"rps":         func() { limits.RequestsPerSecond, err = parseRate(f.rate) },
		"concurrency": func() { limits.Concurrency = f.concurrency },
		"pacing":      func() { limits.Pacing = f.pacing },
		"url-prefix":  func() { limits.URLPrefix = f.prefix },
		"tenant":      func() { limits.Tenants = f.tenants },
	} {
		if given(flag) {
			changed = true
			set()
		}
	}
	switch {
	case f.concurrency < 0:
		err = exit.Usage("--concurrency: %d: want at least 1, or 0 for no limit", f.concurrency)
	case given("pacing") && f.pacing != "window" && f.pacing != "smooth":
		err = exit.Usage("--pacing: %q: want window or smooth", f.pacing)
	}
	return changed, err
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

func spellRate(limits wire.TargetLimits) (text string) {
	switch limits.RequestsPerSecond {
	case wire.Auto:
		text = fmt.Sprintf("auto, at present %.4g attempts per second", limits.FoundRequestsPerSecond)
	case 0:
		return "no limit of its rate"
	default:
		text = fmt.Sprintf("%g attempts per second", float64(limits.RequestsPerSecond))
	}
	if limits.Pacing == "smooth" {
		text += ", smooth"
	}
	return text
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
