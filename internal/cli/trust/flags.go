package trust

import (
	"crypto/tls"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/renew"
)

// Add adds the flags to a command, unless it has them: one that uses a server and brokers too.
func Add(command *cobra.Command) {
	flags := command.Flags()
	if flags.Lookup(profile.CA) != nil {
		return
	}
	AddTLS(command)
	flags.String(profile.TokenFile, "", "`FILE` with the token to show (default the token in $"+TokenVariable+")")
	profile.AddFlag(command)
}

// AddTLS adds the flags of a command that shows no token of an account, and says by flags of its own where it connects.
func AddTLS(command *cobra.Command) {
	flags := command.Flags()
	flags.String(profile.CA, "", "`FILE` with the authority of the server's certificate\n(default $"+profile.CAVariable+", or those of the system)")
	flags.String(profile.ClientCert, "", "`FILE` with the certificate to show to the server (default $"+profile.CertVariable+")")
	flags.String(profile.ClientKey, "", "`FILE` with that certificate's key (default $"+profile.KeyVariable+")")
}

// TLS returns the configuration that a connection asks for, nil if it asks for nothing.
func TLS(of profile.Connection) (*tls.Config, error) {
	ca, cert, key := of[profile.CA], of[profile.ClientCert], of[profile.ClientKey]
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
