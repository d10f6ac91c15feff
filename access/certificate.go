package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// CertPrefix begins the names of those whom a certificate makes known. No token's name has a colon.
const CertPrefix = "cert:"

// ErrNoName means that a certificate makes nobody known.
var ErrNoName = errors.New("access: the certificate makes nobody known")

// Certificate returns whom the certificate of a client makes known, without roles if no grant matches. The caller has
// verified it. The error is ErrNoName.
func (a *Accounts) Certificate(shown *x509.Certificate) (*Principal, error) {
	name, err := a.names.of(shown)
	if err != nil {
		return nil, err
	}
	return a.granted(CertPrefix+name, nil, shown.NotAfter, func() bool { return true }), nil
}

// CertNames make names of the subjects of certificates. Nil takes the common name of a subject that has one.
type CertNames struct{ rules []nameRule }

// nameRule replaces a subject that a pattern matches as a whole. Without a pattern the subject is the name.
type nameRule struct {
	pattern     *regexp.Regexp
	replacement string
	letters     func(string) string
}

const wantRules = "want RULE:PATTERN/REPLACEMENT/, L or U after it for lower or upper case, or DEFAULT, with commas between them, " +
	"as in RULE:^CN=([a-z0-9.-]+),OU=tills,O=Shop$/$1/L"

var (
	ruleForm  = regexp.MustCompile(`^\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)`)
	groupForm = regexp.MustCompile(`\$(\d+)`)
)

// ParseCertNames reads rules in the form of Kafka's ssl.principal.mapping.rules: the first counts whose pattern matches
// the whole subject, which is written as in RFC 4514, such as CN=till-1,OU=tills,O=Shop; $1 in the replacement is the
// first group of the pattern, and DEFAULT takes the subject as it is. An empty text is nil: the common name.
func ParseCertNames(text string) (*CertNames, error) {
	if text == "" {
		return nil, nil
	}
	names := &CertNames{}
	for rest := text; rest != ""; {
		found := ruleForm.FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("%q: %s", rest, wantRules)
		}
		rest = strings.TrimSpace(rest[len(found[0]):])
		rule := nameRule{letters: map[string]func(string) string{"L": strings.ToLower, "U": strings.ToUpper}[found[3]]}
		if strings.HasPrefix(strings.TrimSpace(found[0]), "RULE:") {
			var err error
			if rule.pattern, err = regexp.Compile(`^(?:` + found[1] + `)$`); err != nil {
				return nil, fmt.Errorf("%q: %w", found[1], err)
			}
			replacement := strings.ReplaceAll(found[2], `\/`, "/")
			rule.replacement = groupForm.ReplaceAllString(replacement, "$${$1}") // Go takes the $1s of $1s for a name
		}
		names.rules = append(names.rules, rule)
	}
	return names, nil
}

// of returns the name of a certificate.
func (n *CertNames) of(shown *x509.Certificate) (string, error) {
	subject, err := subjectOf(shown)
	if err != nil {
		return "", fmt.Errorf("%w: its subject cannot be read", ErrNoName)
	}
	name, why := n.name(subject)
	switch {
	case why != "":
		return "", fmt.Errorf("%w: %s of its subject %.256q", ErrNoName, why, subject)
	case !printable(name):
		return "", fmt.Errorf("%w: want a name of 1 to %d bytes that can be printed, and it is %.256q", ErrNoName, maxName, name)
	}
	return name, nil
}

// name returns the name of a subject, or why it has none.
func (n *CertNames) name(subject pkix.RDNSequence) (name, why string) {
	if n == nil {
		return commonName(subject)
	}
	text := subject.String()
	for _, rule := range n.rules {
		name = text
		if rule.pattern != nil {
			at := rule.pattern.FindStringSubmatchIndex(text)
			if at == nil {
				continue
			}
			name = string(rule.pattern.ExpandString(nil, rule.replacement, text, at))
		}
		if rule.letters != nil {
			name = rule.letters(name)
		}
		return name, ""
	}
	return "", "no rule of access.cert_name_rules makes a name"
}

// subjectOf returns the subject in the order in which the certificate has it.
func subjectOf(shown *x509.Certificate) (pkix.RDNSequence, error) {
	var subject pkix.RDNSequence
	_, err := asn1.Unmarshal(shown.RawSubject, &subject)
	return subject, err
}

// oidCommonName is the number of the attribute CN.
var oidCommonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// commonName returns the only common name of a subject.
func commonName(subject pkix.RDNSequence) (name, why string) {
	found := 0
	for _, set := range subject {
		for _, attribute := range set {
			if text, is := attribute.Value.(string); is && attribute.Type.Equal(oidCommonName) {
				name = text
				found++
			}
		}
	}
	if found != 1 {
		return "", "want one CN, or access.cert_name_rules, to make a name"
	}
	return name, ""
}
