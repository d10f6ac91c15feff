package serve

import (
	"log/slog"
	"net/http"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/web"
)

// openDashboard mounts the dashboard on the server: of all parts, those that are off included.
func openDashboard(settings *config.Config, server *ops.Server, accounts *accounts, topics *topics, jobs *jobs, rooms *rooms, log *slog.Logger) (*web.Dashboard, error) {
	options := web.Options{
		Metrics: server.Registry(), Failing: server.Failing, Warnings: server.Warnings, Audit: accounts.trail.Trail, Settings: inForce(settings), Logger: log,
	}
	// An interface that has a nil pointer is not nil.
	if accounts.known != nil {
		options.Accounts = accounts.known
	}
	if jobs.engine != nil {
		options.Bulk = jobs.engine
	}
	if rooms.engine != nil {
		options.Rooms = rooms.engine
	}
	if topics.broker != nil {
		options.Topics = topics.broker
	}
	dashboard, err := web.New(options)
	if err != nil {
		return nil, err
	}
	server.Handle(web.Prefix, dashboard)
	server.Handle("GET /{$}", http.RedirectHandler(web.Prefix, http.StatusFound))
	return dashboard, nil
}
