package profile

import (
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/internal/cli/exit"
)

// The variables that stand for flags that are not given, and Variable for --profile.
const (
	Variable        = "SLUICE_PROFILE"
	ServerVariable  = "SLUICE_SERVER"
	BrokersVariable = "SLUICE_BROKERS"
	CAVariable      = "SLUICE_CA"
	CertVariable    = "SLUICE_CLIENT_CERT"
	KeyVariable     = "SLUICE_CLIENT_KEY"
)

// Where a command connects if nothing says where.
const (
	DefaultServer = "http://127.0.0.1:8080"
	DefaultBroker = "127.0.0.1:9092"
)

// The names of the flags that make a connection.
const (
	Server     = "server"
	Brokers    = "brokers"
	TLS        = "tls"
	CA         = "ca"
	ClientCert = "client-cert"
	ClientKey  = "client-key"
	TokenFile  = "token-file"
)

var variables = map[string]string{
	Server: ServerVariable, Brokers: BrokersVariable, CA: CAVariable, ClientCert: CertVariable, ClientKey: KeyVariable, TLS: "", TokenFile: "",
}

// Connection is what a command connects with, by the names of the flags; a flag that is missing
// has its default.
type Connection map[string]string

// AddFlag adds --profile to a command.
func AddFlag(command *cobra.Command) {
	command.Flags().String("profile", "", "`NAME` of what \"sluice profile set\" has stored: where to connect, and with what\n(default $"+Variable+")")
}

// Of returns what a command connects with. A server and what is shown to it belong together: they are of
// a profile, or of the variables, and flags override both; but --server and --brokers leave the profile
// of [Variable] aside.
func Of(command *cobra.Command) (Connection, error) {
	given := flagsOf(command)
	named := ""
	if flag := command.Flags().Lookup("profile"); flag != nil {
		named = flag.Value.String()
	}
	elsewhere := given[Server] != "" || given[Brokers] != ""
	switch {
	case named != "" && elsewhere:
		return nil, exit.Usage("--profile says where to connect: leave out --server and --brokers")
	case named == "" && !elsewhere && os.Getenv(ServerVariable) == "" && os.Getenv(BrokersVariable) == "":
		named = os.Getenv(Variable)
	}
	of := fromVariables()
	if named != "" {
		var err error
		if of, err = stored(named); err != nil {
			return nil, err
		}
	}
	maps.Copy(of, given)
	return of, nil
}

// stored returns one of the user's profiles.
func stored(name string) (Connection, error) {
	all, err := Load()
	if err != nil {
		return nil, err
	}
	return find(name, all)
}

func fromVariables() Connection {
	of := Connection{}
	for name, variable := range variables {
		if value := os.Getenv(variable); variable != "" && value != "" {
			of[name] = value
		}
	}
	return of
}

// flagsOf returns the flags of a connection that a command line has.
func flagsOf(command *cobra.Command) Connection {
	given := Connection{}
	command.Flags().Visit(func(flag *pflag.Flag) {
		if _, known := variables[flag.Name]; !known {
			return
		}
		value := flag.Value.String()
		if several, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(several.GetSlice(), ",")
		}
		if value != "" {
			given[flag.Name] = value
		}
	})
	return given
}

// ServerURL returns the URL of the server.
func (c Connection) ServerURL() (string, error) {
	base := c[Server]
	if base == "" {
		base = DefaultServer
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		return "", exit.Usage("--server: %q: want a URL, such as %s", base, DefaultServer)
	}
	return base, nil
}

// BrokerAddresses returns the addresses of the brokers.
func (c Connection) BrokerAddresses() ([]string, error) {
	all := c[Brokers]
	if all == "" {
		all = DefaultBroker
	}
	addresses := strings.Split(all, ",")
	for i, address := range addresses {
		address = strings.TrimSpace(address)
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return nil, exit.Usage("--brokers: %q: want host:port, such as %s", address, DefaultBroker)
		}
		addresses[i] = address
	}
	return addresses, nil
}
