package e2e

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// identityProvider is a provider of the tests, which signs with one key.
type identityProvider struct {
	t   *testing.T
	url string
	key ed25519.PrivateKey
}

func newIdentityProvider(t *testing.T) *identityProvider {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(keys.Close)
	return &identityProvider{t, keys.URL, private}
}

// settings are those of a server that accepts its JWTs: the role idp-admin is admin, and so on.
func (p *identityProvider) settings() []string {
	grants := make([]string, 0, len(access.Roles()))
	for _, role := range access.Roles() {
		grants = append(grants, "claim:idp-"+string(role)+" "+string(role))
	}
	return []string{"SLUICE_ACCESS_JWT_ISSUER=" + p.url, "SLUICE_ACCESS_JWT_AUDIENCE=sluice", "SLUICE_ACCESS_JWT_KEYS=" + p.url, "SLUICE_ACCESS_GRANTS=" + strings.Join(grants, ",")}
}

// sign returns a JWT of somebody with a role, for a time.
func (p *identityProvider) sign(name, role string, life time.Duration) string {
	p.t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": p.url, "aud": "sluice", "sub": name, "roles": []string{role}, "exp": time.Now().Add(life).Unix()})
	token.Header["kid"] = "1"
	text, err := token.SignedString(p.key)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// Those whom an identity provider knows may do what grants say, over HTTP and by OAUTHBEARER; the audit has their
// names, and no JWT is in the log, in an answer or in the audit.
func TestJWTsOfAnIdentityProvider(t *testing.T) {
	t.Parallel()
	provider := newIdentityProvider(t)
	s := withAccounts(t, "--log-level", "debug")
	s.env = append(s.env, provider.settings()...)
	s.start()
	var planted []string
	jwtOf := func(role string, life time.Duration) string {
		planted = append(planted, provider.sign("alice", role, life))
		return planted[len(planted)-1]
	}
	admin := jwtOf("idp-admin", time.Hour)
	until.True(t, "the server has the keys", func() bool { return s.as(admin, "GET", "/v1/tokens", "").status == http.StatusOK })
	for _, test := range []struct {
		token, method, path string
		status              int
		says                string
	}{
		{jwtOf("idp-viewer", time.Hour), "GET", "/v1/actions", http.StatusOK, ""},
		{jwtOf("idp-viewer", time.Hour), "GET", "/v1/tokens", http.StatusForbidden, "jwt:alice lacks the right manage-access"},
		{jwtOf("idp-nothing", time.Hour), "GET", "/v1/actions", http.StatusForbidden, "jwt:alice has no role here"},
		{jwtOf("idp-viewer", -time.Hour), "GET", "/v1/actions", http.StatusUnauthorized, "expired"},
	} {
		if a := s.as(test.token, test.method, test.path, ""); a.status != test.status || !strings.Contains(string(a.body), test.says) || strings.Contains(string(a.body), test.token) {
			t.Errorf("%s: %d %s, want %d %s", test.path, a.status, a.body, test.status, test.says)
		}
	}
	ping := func(token string) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.SASL(oauth.Auth{Token: token}.AsMechanism()), kgo.RequestRetries(0))
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
		defer cancel()
		return client.Ping(ctx)
	}
	if err := ping(jwtOf("idp-consumer", time.Hour)); err != nil {
		t.Errorf("OAUTHBEARER: %v", err)
	}
	if err := ping(jwtOf("idp-consumer", -time.Hour)); err == nil || errors.Is(err, kerr.BrokerNotAvailable) {
		t.Errorf("OAUTHBEARER with a JWT that has expired: %v", err)
	}
	s.terminate()
	trail, err := os.ReadFile(filepath.Join(s.data, "audit.log"))
	if err != nil || !strings.Contains(string(trail), "jwt:alice") {
		t.Errorf("the audit does not name alice: %v, %s", err, trail)
	}
	for _, secret := range planted {
		if strings.Contains(s.log.String(), secret) || strings.Contains(string(trail), secret) {
			t.Error("the log or the audit shows a JWT")
		}
	}
}
