package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Listener is an address to serve at.
type Listener struct {
	// Name is empty for the only one of a setting without names.
	Name string
	// Addr is the host:port to listen at, and Advertise the one that Kafka clients are told to connect to; empty: the one that
	// they have connected to.
	Addr, Advertise string
	TLS             bool
}

// Listeners returns the listeners for Kafka clients, in the order of the setting; none if topics are off.
func (c *Config) Listeners() []Listener {
	advertised := map[string]string{}
	for _, text := range c.Topic.Advertise {
		if text != advertiseAuto {
			name, address := cutName(text)
			advertised[name] = address
		}
	}
	all := listeners(c.Topic.Kafka, c.TLS.On())
	for i := range all {
		all[i].Advertise = advertised[all[i].Name]
	}
	return all
}

// HTTPListeners returns the listeners of the API and the dashboard, in the order of the setting.
func (c *Config) HTTPListeners() []Listener { return listeners(c.HTTP, c.TLS.On()) }

// PublicListeners returns the listeners of the public part of the API, in the order of the setting; none if it is off.
func (c *Config) PublicListeners() []Listener { return listeners(c.Public, c.TLS.On()) }

// GateListeners returns the listeners of the gate, in the order of the setting; none if it is off.
func (c *Config) GateListeners() []Listener { return listeners(c.Gate.HTTP, c.Gate.TLSCert != "") }

// listeners returns those of a setting; the one without a name has TLS if there is a certificate.
func listeners(setting List, certified bool) []Listener {
	if setting.String() == Off {
		return nil
	}
	var all []Listener
	for _, text := range setting {
		listener := Listener{Addr: text, TLS: certified}
		if form := listenerForm.FindStringSubmatch(text); form != nil {
			listener = Listener{Name: form[1], TLS: form[2] == "tls", Addr: form[3]}
		}
		all = append(all, listener)
	}
	return all
}

// exposed reports whether others than this machine reach the listener.
func (l Listener) exposed() bool { return !loopback(l.Addr) }

// String returns the listener as the setting has it.
func (l Listener) String() string {
	switch {
	case l.Name == "":
		return l.Addr
	case l.TLS:
		return l.Name + "=tls://" + l.Addr
	}
	return l.Name + "=plain://" + l.Addr
}

// reached returns the host:port that all clients of the listener can be told; empty: it depends on how each has connected.
func (l Listener) reached() string {
	if l.Advertise == "" && checkHostPort(l.Addr) == nil {
		return l.Addr
	}
	return l.Advertise
}

// advertising returns what topic.advertise has for the listener at an address.
func (l Listener) advertising(address string) string {
	if l.Name == "" {
		return address
	}
	return l.Name + "=" + address
}

// listenersMax is how many listeners a setting can have.
const listenersMax = 16

// listenerForm is a listener with a name.
var listenerForm = regexp.MustCompile(`^([a-zA-Z0-9_-]{1,64})=(plain|tls)://(.*)$`)

// checkListeners returns a check of listeners, with the ports of an example, and what else its error says.
func checkListeners(plain, secure, or string) check {
	wrong := fmt.Errorf("want host:port, such as 127.0.0.1:%s, or up to %d, each with a name of its own and plain or tls, such as internal=plain://127.0.0.1:%[1]s, public=tls://0.0.0.0:%[3]s%[4]s", plain, listenersMax, secure, or)
	return func(text string) error {
		list, named := ParseList(text), map[string]bool{}
		if len(list) == 1 && !strings.Contains(list[0], "=") && checkAddress(list[0]) == nil {
			return nil
		}
		for _, one := range list {
			form := listenerForm.FindStringSubmatch(one)
			if form == nil || checkAddress(form[3]) != nil || named[form[1]] {
				if one == text { // which the caller quotes
					return wrong
				}
				return fmt.Errorf("%q: %w", one, wrong)
			}
			named[form[1]] = true
		}
		if len(list) == 0 || len(list) > listenersMax {
			return wrong
		}
		return nil
	}
}

// cutName returns the parts of an address with a name before it, NAME=host:port; the name may be missing.
func cutName(text string) (name, address string) {
	before, after, named := strings.Cut(text, "=")
	if !named {
		return "", text
	}
	return before, after
}

func checkAdvertised(text string) error {
	if _, address := cutName(text); checkHostPort(address) != nil {
		return errors.New(`want host:port that others can connect to, such as broker.example.com:9092 or public=broker.example.com:9093, or "auto"`)
	}
	return nil
}

// validateListeners checks the listeners against what they need.
func (c *Config) validateListeners() error {
	const operators = "tls.cert_file and tls.key_file"
	for _, of := range []struct {
		key       string
		listeners []Listener
		certified bool
		need      string
	}{
		{"http", c.HTTPListeners(), c.TLS.On(), operators}, {"public", c.PublicListeners(), c.TLS.On(), operators}, {"kafka", c.Listeners(), c.TLS.On(), operators},
		{"gate.http", c.GateListeners(), c.Gate.TLSCert != "", "gate.tls_cert and gate.tls_key"},
	} {
		for _, listener := range of.listeners {
			if listener.TLS && !of.certified {
				return c.wrong(of.key, fmt.Sprintf("%q: want %s too", listener, of.need))
			}
		}
	}
	var names, forms []string
	for _, listener := range c.Listeners() {
		names, forms = append(names, listener.Name), append(forms, listener.advertising("HOST:PORT"))
	}
	for i, text := range c.Topic.Advertise {
		name, _ := cutName(text)
		again := slices.ContainsFunc(c.Topic.Advertise[:i], func(other string) bool { before, _ := cutName(other); return before == name })
		if c.Topic.On() && text != advertiseAuto && (again || !slices.Contains(names, name)) {
			return c.wrong("topic.advertise", fmt.Sprintf("%q: want %s, each at most once, as kafka has them", text, strings.Join(forms, ", ")))
		}
	}
	return nil
}

// Unprotected returns the addresses, as "key address", at which others than this machine
// reach what nothing authenticates: HTTP for operators and, if the process serves them,
// Kafka clients. Certificates of clients authenticate both, and so do tokens, which need TLS.
// Without insecure_listen it returns an [*Error] about the first of them.
func (c *Config) Unprotected(topics bool) (exposed []string, err error) {
	type served struct {
		key, instead string
		Listener
	}
	var all []served
	for _, listener := range c.HTTPListeners() {
		all = append(all, served{"http", "127.0.0.1:8080", listener})
	}
	if topics {
		for _, listener := range c.Listeners() {
			all = append(all, served{"kafka", "127.0.0.1:9092", listener})
		}
	}
	for _, at := range all {
		if !at.exposed() || at.TLS && (c.TLS.ClientCAFile != "" || c.Access.On()) {
			continue
		}
		if !c.InsecureListen {
			why := "nothing authenticates them"
			if c.Access.On() {
				why = "their tokens would cross the network in the clear"
			}
			protected := "access.admin_token and tls.cert_file, or tls.client_ca_file"
			if at.Name != "" {
				protected = "tls:// there with access.admin_token or tls.client_ca_file"
			}
			return nil, c.wrong(at.key, fmt.Sprintf("%q: others than this machine reach it, and %s: want an address of this machine, such as %s, "+
				"or %s, or, where only your own programs can connect, insecure_listen (--insecure-listen)", at.Listener, why, at.instead, protected))
		}
		exposed = append(exposed, at.key+" "+at.String())
	}
	return exposed, nil
}
