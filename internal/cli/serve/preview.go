package serve

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room/gate"
)

// newPreview returns the command sluice gate preview.
func newPreview() *cobra.Command {
	var host string
	command := &cobra.Command{
		Use:   "preview",
		Short: "Show the pages of a gate, of all kinds and in all languages",
		Long: `Show the pages of a gate in a browser, of all kinds and in all languages, to an invented
visitor whose line advances. The page is that of the flags, as --template waiting.html
or --texts fr.yaml, or of a site of the file of settings. Settings, template, texts and logo are read again for each page: change them,
and load the page again. There is no room and no upstream, and nothing is stored. Of several addresses of
the gate, the first is served, without TLS.`,
		Example: `  sluice gate preview
  sluice gate preview --brand "The Shop" --theme accent=#8a1c1c,dark-accent=#ffb4a8 --languages en,ja
  sluice gate preview --config sluice.yml --host shop.example.com`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			load := func() (gate.Site, error) {
				settings, err := config.LoadGate(command.Flags(), os.Environ())
				if err != nil {
					return gate.Site{}, err
				}
				return previewed(settings, host)
			}
			settings, err := config.LoadGate(command.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if settings.Gate.HTTP.String() == config.Off {
				return exit.Usage("give the preview an address: --listen %s", config.DefaultGate)
			}
			languages, err := languagesOf(&settings.Gate)
			if err != nil {
				return err
			}
			pages, err := gate.Preview(load, languages)
			if err != nil {
				return err
			}
			log, err := ops.NewLogger(command.ErrOrStderr(), "text", 0)
			if err != nil {
				return err
			}
			listen := settings.GateListeners()[0].Addr
			log.Info("serving", "preview", "http://"+listen)
			return lifecycle.Run(command.Context(), stopMargin, ops.NewFront(ops.Options{Addr: listen, Name: "preview", Logger: log}, pages))
		},
	}
	command.Flags().SortFlags = false
	config.PreviewFlags(command.Flags())
	command.Flags().StringVar(&host, "host", "", "`name` among the hosts of gate.sites; without it: the first site")
	return command
}

// previewed returns the site that has a host; "": the first.
func previewed(settings *config.Config, host string) (gate.Site, error) {
	all := settings.Gate.AllSites()
	i := slices.IndexFunc(all, func(s config.Site) bool { return host == "" || slices.Contains(s.Hosts, host) })
	if i < 0 {
		return gate.Site{}, exit.Usage("--host: no site of gate.sites has %q", host)
	}
	made, err := (&sites{}).of(&settings.Gate)
	if err != nil {
		return gate.Site{}, settings.OfSites(err)
	}
	return made[i], nil
}

// newWords returns the command sluice gate words.
func newWords() *cobra.Command {
	return &cobra.Command{
		Use:   "words [LANGUAGE]",
		Short: "Print the texts of the page in a language that is built in",
		Long: `Print the texts of the waiting page in a language that is built in: en (the default), ko,
ja or zh-Hans. Translate them, look at them with "sluice gate preview --texts fr.yaml", and
name the file in gate.texts. What is missing there is taken from the built-in texts of the
language, or the English ones.`,
		Example: `  sluice gate words > fr.yaml`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			text, err := gate.WordsFile(append(args, "en")[0])
			if err != nil {
				return exit.Usage("%w", err)
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
}
