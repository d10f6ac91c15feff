package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

func newTargetCommand(connect connector) *cobra.Command {
	var f remoteFlags
	var rate string
	var concurrency int
	command := &cobra.Command{
		Use:   "target NAME",
		Short: "Show or set the limits of a target",
		Long: `Show the limits of a target, after changing those that are given. A target is
named as actions name it: by default, by the host and port of its URL. It need
not be known yet.

With --rps auto the rate is found from how the target answers: more is tried
while it bears it, and less when it throttles or answers ever later.`,
		Example: `  sluice bulk target api.example.com:443
  sluice bulk target api.example.com:443 --rps auto
  sluice bulk target api.example.com:443 --rps 100 --concurrency 20
  sluice bulk target api.example.com:443 --rps 0`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongUsage("give the name of one target, such as api.example.com:443")
			}
			return nil
		},
	}
	f.add(command)
	command.Flags().StringVar(&rate, "rps", "", "the most attempts started per second: a number, 0 for no\nlimit, or auto")
	command.Flags().IntVar(&concurrency, "concurrency", 0, "the most attempts in flight; 0 for no limit")
	command.RunE = f.with(connect, func(ctx context.Context, r *remote, args []string) error {
		var change targetChange
		if command.Flags().Changed("rps") {
			parsed, err := parseRate(rate)
			if err != nil {
				return err
			}
			change.rate = &parsed
		}
		if command.Flags().Changed("concurrency") {
			if concurrency < 0 {
				return wrongUsage("--concurrency: %d: want at least 1, or 0 for no limit", concurrency)
			}
			change.concurrency = &concurrency
		}
		return r.target(ctx, args[0], change)
	})
	return command
}

// parseRate reads a rate as a flag spells it.
func parseRate(text string) (wire.Rate, error) {
	if text == "auto" {
		return wire.Auto, nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 0 && rate <= wire.MaxRate) {
		return 0, wrongUsage("--rps: %q: want a number, 0 for no limit, or auto", text)
	}
	return wire.Rate(rate), nil
}

// targetChange is what is to be changed of a target's limits; nil stays.
type targetChange struct {
	rate        *wire.Rate
	concurrency *int
}

// target changes a target's limits, and writes what holds.
func (r *remote) target(ctx context.Context, name string, change targetChange) error {
	limits, err := r.server.Target(ctx, name)
	if err != nil {
		return err
	}
	if change != (targetChange{}) {
		if change.rate != nil {
			limits.RequestsPerSecond = *change.rate
		}
		if change.concurrency != nil {
			limits.Concurrency = *change.concurrency
		}
		limits.FoundRequestsPerSecond = 0 // It is not set.
		if limits, err = r.server.SetTarget(ctx, name, limits); err != nil {
			return err
		}
	}
	if r.json {
		return r.writeJSON(&limits)
	}
	fmt.Fprintf(r.out, "%s: %s, %s\n", name, spellRate(limits), spellConcurrency(limits.Concurrency))
	return nil
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
