package config

import "fmt"

// Unprotected returns the addresses, as "key address", at which others than this machine
// reach what nothing authenticates: HTTP for operators and, if the process serves them,
// Kafka clients. Certificates of clients authenticate both; tokens, which need TLS, authenticate HTTP.
// Without insecure_listen it returns an [*Error] about the first of them.
func (c *Config) Unprotected(topics bool) (exposed []string, err error) {
	if c.TLS.ClientCAFile != "" {
		return nil, nil
	}
	served := []struct {
		key, address, instead string
		tokens                bool // it asks for tokens if there are accounts
	}{
		{"http", c.HTTP, "127.0.0.1:8080", true}, {"kafka", c.Topic.Kafka, "127.0.0.1:9092", false},
	}
	if !topics {
		served = served[:1]
	}
	for _, at := range served {
		if at.address == Off || loopback(at.address) || at.tokens && c.Access.On() && c.TLS.On() {
			continue
		}
		if !c.InsecureListen {
			why, want := "nothing authenticates them", "access.admin_token and tls.cert_file, or tls.client_ca_file"
			if at.tokens && c.Access.On() {
				why = "their tokens would cross the network in the clear"
			} else if !at.tokens {
				want = "tls.client_ca_file"
			}
			return nil, c.wrong(at.key, fmt.Sprintf("%q: others than this machine reach it, and %s: want an address of this machine, such as %s, "+
				"or %s, or, where only your own programs can connect, insecure_listen (--insecure-listen)", at.address, why, at.instead, want))
		}
		exposed = append(exposed, at.key+" "+at.address)
	}
	return exposed, nil
}
