package access_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
)

// attribute is one of a subject: C, O, OU or CN.
func attribute(name, value string) []pkix.AttributeTypeAndValue {
	numbers := map[string]int{"CN": 3, "C": 6, "O": 10, "OU": 11}
	return []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, numbers[name]}, Value: value}}
}

// certificateOf returns a certificate of a subject, whose attributes are in the order of the certificate.
func certificateOf(t testing.TB, attributes ...string) *x509.Certificate {
	t.Helper()
	var subject pkix.RDNSequence
	for _, text := range attributes {
		name, value, _ := strings.Cut(text, "=")
		subject = append(subject, attribute(name, value))
	}
	raw, err := asn1.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{RawSubject: raw, NotAfter: time.Now().Add(time.Hour)}
}

func withNames(t testing.TB, rules string, grants ...string) *access.Accounts {
	t.Helper()
	names, err := access.ParseCertNames(rules)
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Names: names, Grants: grantsOf(t, grants...)})
	if err != nil {
		t.Fatal(err)
	}
	return accounts
}

func grantsOf(t testing.TB, texts ...string) []access.Grant {
	t.Helper()
	grants := make([]access.Grant, len(texts))
	for i, text := range texts {
		var err error
		if grants[i], err = access.ParseGrant(text); err != nil {
			t.Fatal(err)
		}
	}
	return grants
}

// The name of a certificate is that of the first rule that matches its whole subject; without rules, its only common
// name. No subject gets the name of another by what it says of itself.
func TestNamesOfCertificates(t *testing.T) {
	const tills = `RULE:^CN=([a-z0-9-]+),OU=tills,O=Shop$/$1s/`
	till := []string{"O=Shop", "OU=tills", "CN=till-1"}
	for _, test := range []struct {
		rules   string
		subject []string
		want    string // "": none
	}{
		{"", till, "cert:till-1"},
		{"", []string{"O=Shop"}, ""},
		{"", []string{"CN=a", "CN=admin"}, ""},
		{"", []string{"CN=a\nb"}, ""},
		{"", []string{"CN=" + strings.Repeat("a", 257)}, ""},
		{"", []string{"CN=a,CN=admin"}, "cert:a,CN=admin"},
		{tills, till, "cert:till-1s"},
		{tills, []string{"O=Shop", "OU=tills", "OU=tills", "CN=a"}, ""},
		{tills, []string{"O=Other", "OU=tills", "CN=till-1"}, ""},
		{tills, []string{"O=Shop", "CN=till-1,OU=tills"}, ""},
		{"RULE:CN=(.*),OU=x/$1/ , " + tills + ",DEFAULT", till, "cert:till-1s"},
		{"RULE:CN=(.*),OU=x/$1/,DEFAULT", till, "cert:CN=till-1,OU=tills,O=Shop"},
		{`RULE:CN=(\w+),O=(\w+)/$2\/$1/L`, []string{"O=Shop", "CN=Till"}, "cert:shop/till"},
		{`RULE:CN=(\w+),O=(\w+)/$2.$1/L`, []string{"O=Shop", "CN=Till"}, "cert:shop.till"},
		{`RULE:CN=(\w+)/$1/U`, []string{"CN=Till"}, "cert:TILL"},
		{`RULE:CN=\w+/none/`, []string{"CN=Till"}, "cert:none"},
	} {
		p, err := withNames(t, test.rules).Certificate(certificateOf(t, test.subject...))
		if test.want == "" && !errors.Is(err, access.ErrNoName) || test.want != "" && (err != nil || p.Name != test.want) {
			t.Errorf("%q of %q: %+v, %v, want %q", test.rules, test.subject, p, err, test.want)
		}
	}
	for _, rules := range []string{"CN", "RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/x", "RULE:(/b/", "DEFAULT RULE:a/b/", ","} {
		if names, err := access.ParseCertNames(rules); err == nil {
			t.Errorf("%q: %+v", rules, names)
		}
	}
}

// A certificate has the rights of its grant, until it expires or the grants give it something else. A certificate
// without a grant is known, and may do nothing.
func TestGrantsOfCertificates(t *testing.T) {
	accounts := withNames(t, "", "name:cert:till producer topic=orders*", "name:cert:boss admin", "claim:till viewer")
	till, err := accounts.Certificate(certificateOf(t, "CN=till"))
	if err != nil || !till.May(access.Produce) || till.May(access.ReadBulk) || !till.Topic("orders-1") || till.Topic("x") || !accounts.Valid(till) {
		t.Fatalf("%+v, %v", till, err)
	}
	stranger, err := accounts.Certificate(certificateOf(t, "CN=stranger"))
	if err != nil || stranger.May(access.Known) || !accounts.Valid(stranger) {
		t.Errorf("without a grant: %+v, %v", stranger, err)
	}
	accounts.SetGrants(grantsOf(t, "name:cert:stranger viewer", "name:cert:till producer topic=orders*"))
	if !accounts.Valid(till) || accounts.Valid(stranger) {
		t.Errorf("after other grants changed: the till is valid %v, the stranger %v", accounts.Valid(till), accounts.Valid(stranger))
	}
	accounts.SetGrants(grantsOf(t, "name:cert:till producer topic=orders"))
	if accounts.Valid(till) {
		t.Error("somebody whose limits were narrowed is valid")
	}
	accounts.SetGrants(nil)
	if accounts.Valid(till) {
		t.Error("somebody whose grant was taken away is valid")
	}
	ended := certificateOf(t, "CN=till")
	ended.NotAfter = time.Now().Add(-time.Second)
	if p, err := accounts.Certificate(ended); err != nil || accounts.Valid(p) {
		t.Errorf("an expired certificate: %+v, %v", p, err)
	}
}

// FuzzParseCertNames: no rules panic, nor does their use.
func FuzzParseCertNames(f *testing.F) {
	f.Add(`RULE:^CN=(.*?),OU=x$/$1/L,DEFAULT`, "a")
	f.Fuzz(func(t *testing.T, rules, name string) {
		names, err := access.ParseCertNames(rules)
		if err != nil {
			return
		}
		accounts, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Names: names})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := asn1.Marshal(pkix.RDNSequence{attribute("CN", name)})
		if err != nil {
			return
		}
		if p, err := accounts.Certificate(&x509.Certificate{RawSubject: raw}); err == nil && !strings.HasPrefix(p.Name, access.CertPrefix) {
			t.Errorf("%+v", p)
		}
	})
}

// BenchmarkCertificate is what a certificate costs at each request.
func BenchmarkCertificate(b *testing.B) {
	for name, rules := range map[string]string{"CN": "", "rule": `RULE:^CN=([a-z0-9-]+),OU=tills,O=Shop$/$1/`} {
		b.Run(name, func(b *testing.B) {
			accounts, shown := withNames(b, rules, "name:cert:till-1 producer"), certificateOf(b, "O=Shop", "OU=tills", "CN=till-1")
			for b.Loop() {
				if p, err := accounts.Certificate(shown); err != nil || len(p.Roles) == 0 {
					b.Fatal(p, err)
				}
			}
		})
	}
}
