package serve

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/lifecycle"
)

// secrets gives the parts their new secrets, and the gate its sites, when the file of the settings has changed, at
// most [renew.Age] after it. All other settings hold until the process ends.
type secrets struct {
	*lifecycle.Group
	path  string
	file  *renew.Files
	load  func() (*config.Config, error)
	parts []func(*config.Config) error
	log   *slog.Logger
}

// newSecrets returns the service for settings that load has returned and returns again. It
// calls the parts that are not nil.
func newSecrets(settings *config.Config, load func() (*config.Config, error), log *slog.Logger, parts ...func(*config.Config) error) *secrets {
	return &secrets{
		Group: lifecycle.NewGroup(context.Background()), path: cmp.Or(settings.File(), settings.Access.AdminTokenFile), file: renew.NewFiles(settings.File(), settings.Access.AdminTokenFile),
		load: load, parts: parts, log: log,
	}
}

// Name implements lifecycle.Service.
func (s *secrets) Name() string { return "secrets of the settings" }

// Start implements lifecycle.Service.
func (s *secrets) Start(context.Context) error {
	s.Go("file of the settings", func(ctx context.Context) error {
		for lifecycle.Sleep(ctx, nil, renew.Age) {
			if s.file.Changed() {
				s.read()
			}
		}
		return nil
	})
	return nil
}

// read reads the file again. Settings that are wrong change nothing.
func (s *secrets) read() {
	settings, err := s.load()
	for _, replace := range s.parts {
		if err == nil && replace != nil {
			err = replace(settings)
		}
	}
	if err != nil {
		s.log.Error("secrets and gate.sites stay as they were: the settings cannot be read again", "file", s.path, "error", err)
		return
	}
	s.log.Info("secrets and gate.sites were read again; other settings wait for a restart", "file", s.path)
}
