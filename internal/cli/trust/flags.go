package trust

import (
	"crypto/tls"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/renew"
)

// The variables that stand for flags that are not given.
const (
	CAVariable   = "SLUICE_CA"
	CertVariable = "SLUICE_CLIENT_CERT"
	KeyVariable  = "SLUICE_CLIENT_KEY"
)

// Add adds the flags to a command, unless it has them: one that uses a server and brokers too.
func Add(command *cobra.Command) {
	flags := command.Flags()
	if flags.Lookup("ca") != nil {
		return
	}
	flags.String("ca", "", "`FILE` with the authority of the server's certificate\n(default $"+CAVariable+", or those of the system)")
	flags.String("client-cert", "", "`FILE` with the certificate to show to the server (default $"+CertVariable+")")
	flags.String("token-file", "", "`FILE` with the token to show (default the token in $"+TokenVariable+")")
	flags.String("client-key", "", "`FILE` with that certificate's key (default $"+KeyVariable+")")
}

// TLS returns the configuration that a command's flags and the variables ask for, nil if they ask
// for nothing.
func TLS(command *cobra.Command) (*tls.Config, error) {
	ca, cert, key := value(command, "ca", CAVariable), value(command, "client-cert", CertVariable), value(command, "client-key", KeyVariable)
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if ca != "" {
		if config.RootCAs, err = renew.Authorities(ca); err != nil {
			return nil, exit.Usage("--ca: %w", err)
		}
	}
	if (cert == "") != (key == "") {
		return nil, exit.Usage("--client-cert and --client-key belong together: give both")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, exit.Usage("--client-cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// value returns that of a flag, or of the variable that stands for it.
func value(command *cobra.Command, flag, variable string) string {
	if f := command.Flags().Lookup(flag); f != nil && f.Value.String() != "" {
		return f.Value.String()
	}
	return os.Getenv(variable)
}
