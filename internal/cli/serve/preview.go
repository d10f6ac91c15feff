package serve

import (
	template "github.com/DataDog/datadog-agent/pkg/template/html"
	"github.com/spf13/cobra"
	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room/gate"
)

// newPreview returns the command sluice gate preview.
func newPreview() *cobra.Command {
	var listen, path, brand string
	var languages []string
	command := &cobra.Command{
		Use:   "preview",
		Short: "Show the pages of a gate, of all kinds and in all languages",
		Long: `Show the pages of a gate in a browser, of all kinds and in all languages, to an invented
visitor whose line advances. A template is read again for each page: change it, and
load the page again. There is no room and no upstream, and nothing is stored.`,
		Example: `  sluice gate preview
  sluice gate preview --template waiting.html --brand "The Shop" --languages en,ja`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var tags []language.Tag
			for _, name := range languages {
				tag, err := language.Parse(name)
				if err != nil {
					return exit.Usage("--languages: %q: %w", name, err)
				}
				tags = append(tags, tag)
			}
			load := func() (*template.Template, error) { return readTemplate(path) }
			if _, err := load(); err != nil {
				return err
			}
			pages, err := gate.Preview(load, brand, tags)
			if err != nil {
				return exit.Usage("--languages: %w", err)
			}
			log, err := ops.NewLogger(command.ErrOrStderr(), "text", 0)
			if err != nil {
				return err
			}
			log.Info("serving", "preview", "http://"+listen)
			return lifecycle.Run(command.Context(), stopMargin, ops.NewFront(ops.Options{Addr: listen, Name: "preview", Logger: log}, pages))
		},
	}
	command.Flags().StringVar(&listen, "listen", config.DefaultGate, "`address` to show them at, host:port")
	command.Flags().StringVar(&path, "template", "", "`file` with the template; without it: the built-in page")
	command.Flags().StringVar(&brand, "brand", "", "`name` that the page shows, such as the shop's")
	command.Flags().StringSliceVar(&languages, "languages", nil, "languages of the page (default all)")
	return command
}
