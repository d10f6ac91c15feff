// Package serve has the commands that run a server: serve, gate, and config, which
// prints their settings. It is the one place that names every part and connects
// them: each open function opens one part with its store and mounts its API.
package serve
