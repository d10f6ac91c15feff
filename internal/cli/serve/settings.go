package serve

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
)

func Settings() *cobra.Command {
	var reference bool
	command := &cobra.Command{
		Use:   "config",
		Short: "Print the settings, and where each comes from",
		Long: `Print the settings that "sluice serve" would use, as YAML, each with a comment that
names its source: defaults, the file of --config or SLUICE_CONFIG, the environment
(SLUICE_BULK_WORKERS for bulk.workers), or flags. Each overrides the sources before
it. The output is a valid file for --config.

The exit code is 2 if a value is wrong.`,
		Example: `  sluice config > sluice.yaml
  sluice config --config sluice.yaml
  SLUICE_BULK_WORKERS=50 sluice config --bulk-window 500ms
  sluice config --reference`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if reference {
				return config.WriteReference(command.OutOrStdout())
			}
			c, err := config.Load(command.Flags(), os.Environ())
			if err != nil {
				return err
			}
			return c.WriteYAML(command.OutOrStdout())
		},
	}
	command.Flags().SortFlags = false
	command.Flags().BoolVar(&reference, "reference", false, "print what each setting means, as Markdown")
	config.Flags(command.Flags())
	return command
}
