package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/certtest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// certified is a server with accounts and TLS, whose clients may show certificates.
type certified struct {
	*server
	authority           *certtest.Authority
	settings, revokedIn string
}

// secure starts a server. Its grants are in its file of settings.
func secure(t *testing.T, grants ...string) *certified {
	t.Helper()
	return certify(t, grants...).another(t)
}

// certify makes what servers share: an authority, its revocation list, and a file of settings.
func certify(t *testing.T, grants ...string) *certified {
	t.Helper()
	folder := t.TempDir()
	s := &certified{authority: certtest.New(t), settings: filepath.Join(folder, "sluice.yaml"), revokedIn: filepath.Join(folder, "crl.pem")}
	s.authority.Revoke(s.revokedIn)
	s.grant(t, grants...)
	return s
}

// another starts a server with these.
func (s *certified) another(t *testing.T, args ...string) *certified {
	t.Helper()
	more := *s
	own := s.authority.Issue("server")
	more.server = withAccounts(t, append([]string{
		"--log-level", "debug", "--config", s.settings, "--tls-cert-file", own.Cert, "--tls-key-file", own.Key, "--tls-client-ca-file", s.authority.File,
		"--tls-client-crl-file", s.revokedIn, "--tls-client-auth", "requested",
	}, args...)...)
	more.secure = s.client()
	more.launch()
	until.True(t, "the server is ready", func() bool {
		status, _ := more.get(more.client(), "/readyz", "")
		return status == http.StatusOK
	})
	return &more
}

// grant replaces the file of the settings.
func (s *certified) grant(t *testing.T, grants ...string) {
	t.Helper()
	text := "access:\n  grants:\n"
	for _, one := range grants {
		text += "    - " + one + "\n"
	}
	replace(t, s.settings, []byte(text))
}

// client returns a client that shows certificates, over connections of its own.
func (s *certified) client(shows ...certtest.Files) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: s.authority.Client(shows...), DisableKeepAlives: true}}
}

// get returns the status and the text of an answer; the status 0 is that of a failed handshake.
func (s *certified) get(client *http.Client, path, token string) (status int, text string) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.addr+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// admin returns a Kafka client that shows a certificate.
func (s *certified) admin(shown certtest.Files) *kadm.Client {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.DialTLSConfig(s.authority.Client(shown)), kgo.RequestRetries(0))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// Certificates are accounts, over HTTP and for Kafka clients: with the rights of their grants, and by their names in the audit
// trail. A token beside one wins; a strange one is refused. Revoking one, or taking its grant away, ends its streams and
// Kafka connections. No key or token is in the log or the audit.
func TestCertificatesAsAccounts(t *testing.T) {
	t.Parallel()
	all := []string{"name:cert:viewer viewer", "name:cert:gone viewer", "name:cert:lost viewer"}
	s := secure(t, all...)
	viewer, gone, lost := s.authority.Issue("viewer"), s.authority.Issue("gone"), s.authority.Issue("lost")
	const wrong = "sluice_of-nobody-at-all"
	foreign := s.authority.Client(certtest.New(t).Issue("viewer"))
	foreign.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &foreign.Certificates[0], nil }
	for name, test := range map[string]struct {
		client      *http.Client
		path, token string
		status      int
		says        string
	}{
		"a certificate":              {s.client(viewer), "/v1/actions", "", http.StatusOK, ""},
		"without the right":          {s.client(viewer), "/v1/tokens", "", http.StatusForbidden, "cert:viewer lacks the right manage-access"},
		"without a grant":            {s.client(s.authority.Issue("stranger")), "/v1/actions", "", http.StatusForbidden, "cert:stranger has no role here"},
		"with the admin token":       {s.client(viewer), "/v1/tokens", adminToken, http.StatusOK, ""},
		"with a wrong token":         {s.client(viewer), "/v1/actions", wrong, http.StatusUnauthorized, "nobody has this token"},
		"only the admin token":       {s.client(), "/v1/tokens", adminToken, http.StatusOK, ""},
		"neither":                    {s.client(), "/v1/actions", "", http.StatusUnauthorized, "needs a token"},
		"one of a strange authority": {&http.Client{Transport: &http.Transport{TLSClientConfig: foreign}}, "/v1/actions", "", 0, "unknown certificate authority"},
	} {
		if status, text := s.get(test.client, test.path, test.token); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s, want %d %s", name, status, text, test.status, test.says)
		}
	}
	if _, err := s.admin(viewer).ListTopics(t.Context()); err != nil {
		t.Errorf("a Kafka client with a certificate: %v", err)
	}
	if _, err := s.admin(viewer).CreateTopic(t.Context(), 1, 1, nil, "orders"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("a Kafka client without the right: %v", err)
	}
	s.endsStreams(gone, func() { s.authority.Revoke(s.revokedIn, gone) })
	s.endsStreams(lost, func() { s.grant(t, all[:2]...) })
	if status, text := s.get(s.client(gone), "/v1/actions", ""); status != 0 || !strings.Contains(text, "bad certificate") {
		t.Errorf("a revoked certificate: %d %s", status, text)
	}
	if status, _ := s.get(s.client(lost), "/v1/actions", ""); status != http.StatusForbidden {
		t.Errorf("after its grant was taken away: %d", status)
	}
	if _, err := s.admin(gone).ListTopics(t.Context()); err == nil {
		t.Error("a Kafka client with a revoked certificate is answered")
	}
	s.checkRecords(t, []string{`"cert:viewer"`, `"cert:stranger"`}, []string{adminToken, wrong}, viewer)
}

// Each role may do what the table says by a certificate too, and clients without one nothing.
func TestEveryRoleAtEveryPathByCertificate(t *testing.T) {
	t.Parallel()
	clients, who := map[string]*http.Client{}, map[string]access.Role{"": nobody}
	var grants []string
	for _, role := range access.Roles() {
		who[string(role)] = role
		grants = append(grants, "name:cert:"+string(role)+" "+string(role))
	}
	s := certify(t, grants...).another(t, "--pprof")
	for name, role := range who {
		config := s.authority.Client()
		if role != nobody {
			config = s.authority.Client(s.authority.Issue(name))
		}
		clients[name] = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		t.Cleanup(clients[name].CloseIdleConnections)
	}
	s.walk(who, func(name, method, path string) answer {
		request, err := http.NewRequestWithContext(t.Context(), method, s.url(path), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		a, err := send(clients[name], request)
		if err != nil {
			t.Fatal(err)
		}
		return a
	})
}

// checkRecords stops the server. It checks that the audit has names, and that neither it nor the log shows secrets or a key.
func (s *certified) checkRecords(t *testing.T, names, secrets []string, of certtest.Files) {
	t.Helper()
	s.terminate()
	trail, err := os.ReadFile(filepath.Join(s.data, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(trail), name) {
			t.Errorf("the audit does not name %s: %s", name, trail)
		}
	}
	key, err := os.ReadFile(of.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(secrets, strings.Split(string(key), "\n")[1]) {
		if strings.Contains(s.log.String()+string(trail), secret) {
			t.Errorf("the log or the audit shows %.10s…", secret)
		}
	}
}

// endsStreams opens a stream with a certificate, and returns when it has ended after something was done.
func (s *certified) endsStreams(shown certtest.Files, do func()) {
	s.t.Helper()
	ended := s.watch(shown)
	do()
	ended()
}

// watch opens a stream with a certificate. It returns a function that waits for its end.
func (s *certified) watch(shown certtest.Files) (ended func()) {
	s.t.Helper()
	admin := s.client()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+s.addr+"/v1/actions", strings.NewReader(`{"id":"a","tenant":"acme","type":"email"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := admin.Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		s.t.Fatal(response, err)
	}
	watch, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.addr+"/v1/actions/a/watch", http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	stream, err := s.client(shown).Do(watch)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = stream.Body.Close() })
	lines := bufio.NewReader(stream.Body)
	if _, err := lines.ReadString('\n'); err != nil || stream.StatusCode != http.StatusOK {
		s.t.Fatal(stream.StatusCode, err)
	}
	return s.ends("the stream", lines)
}

// connection opens a Kafka connection with a certificate. It returns a function that waits for its end.
func (s *certified) connection(shown certtest.Files) (ended func()) {
	s.t.Helper()
	conn, err := (&tls.Dialer{Config: s.authority.Client(shown)}).DialContext(s.t.Context(), "tcp", s.kafka)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	request := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1)
	if _, err := conn.Write(request); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		s.t.Fatalf("a Kafka connection with a certificate is not answered: %v", err)
	}
	return s.ends("the Kafka connection", conn)
}

// ends returns a function that waits until there is nothing more to read.
func (s *certified) ends(what string, from io.Reader) func() {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, from) // however it ends
		close(ended)
	}()
	return func() {
		s.t.Helper()
		until.True(s.t, what+" has ended", func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		})
	}
}
