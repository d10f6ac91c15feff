package profile

import (
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Command returns "sluice profile" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "profile",
		Short: "Name the servers that you use, with what is shown to them",
		Long: `Name servers. A profile says where commands connect, and with what: --profile NAME, or
SLUICE_PROFILE, stands for the flags that it has been set with. Profiles are in the folder
of your settings, in sluice/profiles.json. A token is not in it, only the name of its file.`,
		Example: `  sluice profile set shop --server https://sluice.shop.example --brokers sluice.shop.example:9092 --token-file shop.token
  sluice top --profile shop`,
	}
	command.AddCommand(newSet(), newList(), newRemove())
	return command
}

// names matches the names of profiles.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// files are the flags with names of files.
var files = []string{CA, ClientCert, ClientKey, TokenFile}

func newSet() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "set NAME",
		Short: "Store where to connect, and with what, under a name",
		Long:  `Store a profile. One of the same name is replaced as a whole.`,
		Example: `  sluice profile set test --server http://10.0.0.5:8080
  sluice profile set shop --server https://sluice.shop.example --ca ca.crt --token-file shop.token`,
		Args: exit.One("give the name of the profile"),
		RunE: func(command *cobra.Command, args []string) error {
			of, err := toStore(command, args[0])
			if err != nil {
				return err
			}
			all, err := Load()
			if err != nil {
				return err
			}
			all[args[0]] = of
			if err := save(all); err != nil {
				return err
			}
			out := term.OutputOf(command, asJSON)
			return out.Tell(listed{args[0], of}, "%s is stored: use it with --profile %s", args[0], args[0])
		},
	}
	flags := command.Flags()
	flags.String(Server, "", "`URL` of the server")
	flags.StringSlice(Brokers, nil, "`addresses` of Kafka brokers, with commas between them")
	flags.Bool(TLS, false, "connect to the brokers with TLS; --ca and --client-cert imply it")
	flags.String(CA, "", "`FILE` with the authority of the server's certificate")
	flags.String(ClientCert, "", "`FILE` with the certificate to show to the server")
	flags.String(ClientKey, "", "`FILE` with that certificate's key")
	flags.String(TokenFile, "", "`FILE` with the token to show")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// toStore returns the profile that a command line describes, with absolute names of files.
func toStore(command *cobra.Command, called string) (Connection, error) {
	of := flagsOf(command)
	if !names.MatchString(called) {
		return nil, exit.Usage("%q: want a name of letters, digits, dots, hyphens and underscores, at most 64", called)
	}
	if of[Server] == "" && of[Brokers] == "" {
		return nil, exit.Usage("give --server, --brokers or both")
	}
	if _, err := of.ServerURL(); err != nil {
		return nil, err
	}
	if _, err := of.BrokerAddresses(); err != nil {
		return nil, err
	}
	for _, flag := range files {
		if of[flag] == "" {
			continue
		}
		absolute, err := filepath.Abs(of[flag])
		if err != nil {
			return nil, exit.Usage("--%s: %w", flag, err)
		}
		of[flag] = absolute
	}
	return of, nil
}

// listed is a profile as "list" prints it with --json.
type listed struct {
	Name       string     `json:"name"`
	Connection Connection `json:"connection"`
}

func newList() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use: "list", Short: "List the profiles", Args: cobra.NoArgs,
		Example: `  sluice profile list
  sluice profile list --json | jq -r .name`,
		RunE: func(command *cobra.Command, _ []string) error {
			all, err := Load()
			if err != nil {
				return err
			}
			var rows []listed
			for _, called := range slices.Sorted(maps.Keys(all)) {
				rows = append(rows, listed{called, all[called]})
			}
			out := term.OutputOf(command, asJSON)
			return term.List(&out, rows, "no profiles", columns()...)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print an object per line")
	return command
}

// columns are the name, and a column for each flag that a profile has.
func columns() []term.Column[listed] {
	all := []term.Column[listed]{{Header: "name", Words: true, Cell: func(l *listed) string { return l.Name }}}
	for _, flag := range []string{Server, Brokers, TLS, CA, ClientCert, ClientKey, TokenFile} {
		all = append(all, term.Column[listed]{
			Header: flag, Words: true, Rare: true, Cell: func(l *listed) string { return term.Printable(l.Connection[flag]) },
		})
	}
	return all
}

func newRemove() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use: "remove NAME...", Short: "Remove profiles",
		Example: `  sluice profile remove test`,
		Args:    exit.Between(1, math.MaxInt, `give the names of profiles; "sluice profile list" shows them`),
		RunE: func(command *cobra.Command, args []string) error {
			all, err := Load()
			if err != nil {
				return err
			}
			for _, called := range args {
				if _, err := find(called, all); err != nil {
					return err
				}
			}
			maps.DeleteFunc(all, func(called string, _ Connection) bool { return slices.Contains(args, called) })
			if err := save(all); err != nil {
				return err
			}
			out := term.OutputOf(command, asJSON)
			return out.Tell(map[string][]string{"removed": args}, "removed: %s", strings.Join(args, ", "))
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}
