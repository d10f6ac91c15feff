package serve

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/lifecycle"
)

// gateRoomSettings are the settings of a room that "sluice gate" has flags for.
var gateRoomSettings = []string{
	"mode", "capacity", "auto_min", "auto_max", "pass_ttl", "pass", "batch", "interval", "stay", "claim_window", "routes", "bypass",
}

func Gate() *cobra.Command {
	var of *config.RoomFlags
	command := &cobra.Command{
		Use:   "gate --room NAME --upstream URL",
		Short: "Stand in front of a site, and admit visitors as it can serve them",
		Long: `Stand in front of a site as a reverse proxy: visitors who have a pass of the room are
let through, all others see a waiting page with their place in line.

  127.0.0.1:8000   the gate: send the public here (--listen)
  127.0.0.1:8080   HTTP for operators (--http): the API of rooms, /metrics, /readyz

A missing room is created: its flags say how it admits visitors, as a bank teller
(--capacity) or as an amusement park (--batch, --interval, --stay). Flags change the
settings of an existing room. "sluice room" shows and changes rooms.

Rooms are kept in the data directory, which one process uses at a time. To run a gate
and a server on one directory, use "sluice serve" with gate.http, gate.room and
gate.upstream. A file with gate.sites is a gate of many sites and rooms. Several gates share a line with --state redis://….`,
		Example: `  sluice gate --room shop --upstream http://127.0.0.1:3000 --capacity 200
  sluice gate --room shop --upstream http://127.0.0.1:3000 --capacity 200 --route '/checkout/*'
  sluice gate --room fair --upstream http://127.0.0.1:3000 --batch 500 --interval 1m --stay 15m
  sluice gate --room shop --upstream http://127.0.0.1:3000 --state redis://127.0.0.1:6379`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			load := func() (*config.Config, error) { return config.LoadGate(command.Flags(), os.Environ()) }
			settings, err := load()
			switch {
			case err != nil:
				return err
			case len(settings.Gate.Sites) > 0 && len(of.Object()) > 0:
				return exit.Usage("the file has gate.sites: give their rooms' settings below room.rooms there")
			case len(settings.Gate.Sites) > 0:
			case settings.Gate.Room == "":
				return exit.Usage("give the name of a room: --room shop")
			case settings.Gate.Upstream == "":
				return exit.Usage("say what is behind the gate: --upstream http://127.0.0.1:3000")
			}
			if settings.Gate.HTTP.String() == config.Off {
				return exit.Usage("give the gate an address: --listen %s", config.DefaultGate)
			}
			return runGate(command.Context(), settings, load, of.Object(), command)
		},
	}
	command.Flags().SortFlags = false
	of = config.AddRoomFlags(command.Flags(), gateRoomSettings...)
	config.GateFlags(command.Flags())
	command.AddCommand(newPreview(), newWords())
	return command
}

// runGate serves the gate and the API of rooms until ctx ends.
func runGate(
	ctx context.Context, settings *config.Config, load func() (*config.Config, error), object map[string]any, command *cobra.Command,
) (err error) {
	log, tail, secure, err := prepare(settings, false, command)
	if err != nil {
		return err
	}
	if settings.State.IsEmbedded() {
		log.Info(`no events of visitors are kept: a gate has no topics; "sluice serve" with gate.http is a gate that publishes them`)
	}
	accounts, err := openAccounts(ctx, settings, nil, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, accounts.close()) }()
	disk := fsync.NewWatch(log)
	bounds, server := openServer(settings, accounts, secure, disk, tail, log)
	tracing, err := openTracing(ctx, settings, server, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tracing.close()) }()
	of, err := openRooms(ctx, settings, server, disk, nil, nil, tracing.provider, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, of.close()) }()
	front, err := openGate(settings, of, server, bounds, tracing.provider, log)
	if err != nil {
		return err
	}
	if settings.Gate.Room != "" {
		of.services = append(of.services, newRoomOfFlags(of.engine, settings.Gate.Room, object))
	}
	dashboard, err := openDashboard(settings, server, accounts, &topics{}, &jobs{}, of, log)
	if err != nil {
		return err
	}
	services := slices.Concat(tracing.services, accounts.services, accounts.trail.services(), of.services, []lifecycle.Service{dashboard}, listeners(settings, server, secure), front.services, openPublic(settings, server, secure, bounds.connections, log),
		[]lifecycle.Service{newSecrets(settings, load, log, accounts.secrets, of.secrets, front.secrets)})
	log.Info("serving", "gate", settings.Gate.HTTP.String(), "sites", len(settings.Gate.AllSites()), "room", settings.Gate.Room, "upstream", settings.Gate.Upstream,
		"http", settings.HTTP.String(), "state", settings.State.String(), "data", settings.DataDir)
	return lifecycle.Run(ctx, stopMargin, services...)
}
