package config

import "fmt"

// Unprotected returns the addresses, as "key address", at which others than this machine
// reach what nothing authenticates: HTTP for operators and, if the process serves them,
// Kafka clients. Certificates of clients authenticate both, and so do tokens, which need TLS.
// Without insecure_listen it returns an [*Error] about the first of them.
func (c *Config) Unprotected(topics bool) (exposed []string, err error) {
	if c.TLS.ClientCAFile != "" {
		return nil, nil
	}
	served := []struct{ key, address, instead string }{
		{"http", c.HTTP, "127.0.0.1:8080"}, {"kafka", c.Topic.Kafka, "127.0.0.1:9092"},
	}
	if !topics {
		served = served[:1]
	}
	for _, at := range served {
		if at.address == Off || loopback(at.address) || c.Access.On() && c.TLS.On() {
			continue
		}
		if !c.InsecureListen {
			why := "nothing authenticates them"
			if c.Access.On() {
				why = "their tokens would cross the network in the clear"
			}
			return nil, c.wrong(at.key, fmt.Sprintf("%q: others than this machine reach it, and %s: want an address of this machine, such as %s, "+
				"or access.admin_token and tls.cert_file, or tls.client_ca_file, or, where only your own programs can connect, insecure_listen (--insecure-listen)", at.address, why, at.instead))
		}
		exposed = append(exposed, at.key+" "+at.address)
	}
	return exposed, nil
}
