package config

// TLS are the settings of TLS for operators, their programs and Kafka clients.
type TLS struct {
	// CertFile and KeyFile are the paths of a certificate and its key; empty: no TLS.
	CertFile, KeyFile string
	// ClientCAFile is the path of the authorities of clients' certificates; empty: clients show
	// none.
	ClientCAFile string
	// ClientCRLFile is the path of their revocation lists; empty: none.
	ClientCRLFile string
	// ClientAuth is required or requested; see ClientOptional.
	ClientAuth string
}

// The values of tls.client_auth.
const clientRequired, clientRequested = "required", "requested"

// ClientOptional reports whether clients may connect without a certificate.
func (t *TLS) ClientOptional() bool { return t.ClientAuth == clientRequested }

// On reports whether the addresses have TLS.
func (t *TLS) On() bool { return t.CertFile != "" }

// validateTLS checks the settings of TLS that need each other.
func (c *Config) validateTLS() error {
	t := &c.TLS
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		return c.wrong("tls.cert_file", "want tls.key_file too")
	case t.KeyFile != "" && t.CertFile == "":
		return c.wrong("tls.key_file", "want tls.cert_file too")
	case t.ClientCAFile != "" && !t.On():
		return c.wrong("tls.client_ca_file", "want tls.cert_file and tls.key_file too")
	case t.ClientCRLFile != "" && t.ClientCAFile == "":
		return c.wrong("tls.client_crl_file", "want tls.client_ca_file too, whose authorities have signed the lists")
	case t.ClientOptional() && t.ClientCAFile == "":
		return c.wrong("tls.client_auth", "want tls.client_ca_file too: without it no certificate is requested")
	case t.ClientOptional() && !c.Access.On():
		return c.wrong("tls.client_auth", "without accounts anybody could do everything: want access.admin_token or access.admin_token_file too, or required")
	case c.Cluster.On() && c.Topic.On() && c.Listeners()[0].TLS && c.Cluster.CAFile == "":
		return c.wrong("tls.cert_file", "in a cluster, nodes call each other's Kafka ports: want cluster.ca_file, which must have the authority of this certificate, and cluster.cert_file too")
	}
	return nil
}
