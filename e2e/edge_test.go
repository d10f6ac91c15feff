//go:build proxies

package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/proxytest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// luaModule is nginx's; libnginx-mod-http-lua in Debian.
const luaModule = "/usr/lib/nginx/modules/ngx_http_lua_module.so"

// mainOfEdge is what deploy/edge/nginx.conf is included into.
const mainOfEdge = "load_module /usr/lib/nginx/modules/ndk_http_module.so;\nload_module " + luaModule + ";\n" + proxytest.MainOfNginx

// edgeOf is what an edge is told; the URLs are without a path.
type edgeOf struct {
	site, gate, keys string
	// keysFor are the seconds for which keys are believed.
	keysFor int
	proven  bool
}

// edges start an edge with the files of deploy/edge, and return its URL.
var edges = map[string]func(t *testing.T, of edgeOf) string{
	"worker": startWorker,
	"nginx":  startEdgeNginx,
}

func startWorker(t *testing.T, of edgeOf) string {
	script, err := filepath.Abs("../deploy/edge/worker.js")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "package.json"), `{"type": "module"}`)
	for _, name := range []string{"worker.js", "verify.js"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(script), name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, name), string(text))
	}
	variables, err := json.Marshal(map[string]string{
		"SITE": of.site, "GATE": of.gate, "KEYS": of.keys + "/.well-known/jwks.json", "ROOM": "shop",
		"KEYS_FOR": fmt.Sprint(of.keysFor), "PROVEN": fmt.Sprint(of.proven), "CLIENT": "X-Test-Client",
	})
	if err != nil {
		t.Fatal(err)
	}
	listen := ports.Addrs(t, 1)[0]
	_, port, _ := strings.Cut(listen, ":")
	return proxytest.Run(t, listen, "node", "testdata/edge.mjs", filepath.Join(folder, "worker.js"), port, string(variables))
}

func startEdgeNginx(t *testing.T, of edgeOf) string {
	if _, err := os.Stat(luaModule); err != nil {
		t.Fatalf("%v: run make need-proxies, or: apt-get install --yes libnginx-mod-http-lua", err)
	}
	listen, folder := ports.Addrs(t, 1)[0], t.TempDir()
	plain := func(url string) string { return strings.TrimPrefix(url, "http://") }
	settings := strings.NewReplacer(
		"127.0.0.1:3000", plain(of.site), "127.0.0.1:8000", plain(of.gate), "127.0.0.1:8080", plain(of.keys), "listen 80", "listen "+listen,
		"/etc/nginx/sluice", folder, "{ room = room }", fmt.Sprintf("{ room = room, keys_for = %d, proven = %v }", of.keysFor, of.proven),
	)
	for _, name := range []string{"nginx.conf", "verify.lua"} {
		text, err := os.ReadFile(filepath.Join("../deploy/edge", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, name), settings.Replace(string(text)))
	}
	writeFile(t, filepath.Join(folder, "main.conf"), mainOfEdge)
	return proxytest.Run(t, listen, "nginx", "-p", folder, "-c", "main.conf", "-g", "daemon off;")
}

// keyServer publishes keys as a room does, and counts the requests.
type keyServer struct {
	*httptest.Server
	keys  atomic.Pointer[map[string]ed25519.PublicKey]
	asked atomic.Int64
}

func newKeyServer(t *testing.T) *keyServer {
	s := &keyServer{}
	s.keys.Store(&map[string]ed25519.PublicKey{})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		var set []map[string]string
		for kid, key := range *s.keys.Load() {
			set = append(set, map[string]string{
				"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": kid, "x": base64.RawURLEncoding.EncodeToString(key),
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": set})
	}))
	t.Cleanup(s.Close)
	return s
}

// named returns a server that answers with its name, and with the visitor that it is told.
func named(t *testing.T, name string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s%s%s", name, r.Header.Get("Sluice-Visitor"), r.Header.Get("Sluice-Pass"), body)
	}))
	t.Cleanup(server.Close)
	return server
}

// throughEdge returns the answer to a form with cookies.
func throughEdge(t *testing.T, edge, cookies string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, edge+"/order", strings.NewReader(" form"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Cookie", cookies)
	request.Header.Set("Sluice-Visitor", "forged")
	request.Header.Set("Sluice-Pass", "forged")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// signer signs passes with a key.
type signer struct {
	kid string
	key ed25519.PrivateKey
}

func newSigner(t *testing.T, kid string) signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, key}
}

func (s signer) pass(t *testing.T, left time.Duration, change jwt.MapClaims) string {
	t.Helper()
	now := float64(time.Now().UnixMilli()) / 1000
	claims := jwt.MapClaims{"iss": "sluice", "sub": "7", "room": "shop", "gen": "a", "epoch": 1, "iat": now, "exp": now + left.Seconds()}
	for name, value := range change {
		claims[name] = value
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	token.Header["kid"] = s.kid
	text, err := token.SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unsigned returns a pass that says that it needs no signature, or one with a public key as the secret.
func unsigned(t *testing.T, of signer, method jwt.SigningMethod, key any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims{"iss": "sluice", "sub": "7", "room": "shop", "exp": time.Now().Add(time.Minute).Unix()})
	token.Header["kid"] = of.kid
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An edge believes good passes only; all others are the gate's to judge.
func TestEdgesBelieveGoodPasses(t *testing.T) {
	t.Parallel()
	for name, start := range edges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, good, other := newKeyServer(t), newSigner(t, "k1"), newSigner(t, "k1")
			public := good.key.Public().(ed25519.PublicKey)
			keys.keys.Store(&map[string]ed25519.PublicKey{"k1": public})
			edge := start(t, edgeOf{site: named(t, "site").URL, gate: named(t, "gate").URL, keys: keys.URL, keysFor: 3600})
			const direct, asked = "site 7 form", "gate  form"
			whole := good.pass(t, time.Minute, nil)
			parts := strings.Split(whole, ".")
			for what, test := range map[string]struct{ cookies, want string }{
				"a pass":               {"a=b; sluice_pass_shop=" + whole + "; c=d", direct},
				"one over TLS":         {"__Host-sluice_pass_shop=" + whole + "; sluice_pass_shop=old", direct},
				"no cookie":            {"a=b", asked},
				"no pass":              {"sluice_pass_shop=", asked},
				"no token":             {"sluice_pass_shop=a.b.c", asked},
				"a part":               {"sluice_pass_shop=" + parts[0] + "." + parts[1], asked},
				"another key":          {"sluice_pass_shop=" + other.pass(t, time.Minute, nil), asked},
				"an unknown key":       {"sluice_pass_shop=" + newSigner(t, "k2").pass(t, time.Minute, nil), asked},
				"no signature":         {"sluice_pass_shop=" + unsigned(t, good, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), asked},
				"a public secret":      {"sluice_pass_shop=" + unsigned(t, good, jwt.SigningMethodHS256, []byte(public)), asked},
				"other claims":         {"sluice_pass_shop=" + parts[0] + "." + strings.Split(good.pass(t, time.Hour, nil), ".")[1] + "." + parts[2], asked},
				"expired":              {"sluice_pass_shop=" + good.pass(t, -time.Second, nil), asked},
				"to be renewed":        {"sluice_pass_shop=" + good.pass(t, 29*time.Second, nil), asked},
				"of another room":      {"sluice_pass_shop=" + good.pass(t, time.Minute, jwt.MapClaims{"room": "fair"}), asked},
				"of another issuer":    {"sluice_pass_shop=" + good.pass(t, time.Minute, jwt.MapClaims{"iss": "x"}), asked},
				"bound to a client":    {"sluice_pass_shop=" + good.pass(t, time.Minute, jwt.MapClaims{"client": "00000000"}), asked},
				"two":                  {"sluice_pass_shop=" + whole + "; sluice_pass_shop=" + whole, asked},
				"a slot not yet taken": {"sluice_pass_shop=" + whole + "; sluice_line_shop=0.", asked},
				"too long":             {"sluice_pass_shop=" + good.pass(t, time.Minute, jwt.MapClaims{"x": strings.Repeat("x", 2048)}), asked},
			} {
				if got := throughEdge(t, edge, test.cookies); got != test.want {
					t.Errorf("%s: %q, want %q", what, got, test.want)
				}
			}
			if n := keys.asked.Load(); n > 2 {
				t.Errorf("the keys were asked for %d times: made-up keys must not load the room", n)
			}
		})
	}
}

// Passes of a revoked key end when keys are read again, and all do when they cannot be; with a
// challenge, only passes of visitors who have passed it are believed.
func TestEdgesLoseKeys(t *testing.T) {
	t.Parallel()
	for name, start := range edges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, old, fresh := newKeyServer(t), newSigner(t, "k1"), newSigner(t, "k2")
			keys.keys.Store(&map[string]ed25519.PublicKey{"k1": old.key.Public().(ed25519.PublicKey)})
			edge := start(t, edgeOf{site: named(t, "site").URL, gate: named(t, "gate").URL, keys: keys.URL, keysFor: 1, proven: true})
			direct := func(of signer, change jwt.MapClaims) bool {
				return strings.HasPrefix(throughEdge(t, edge, "sluice_pass_shop="+of.pass(t, time.Minute, change)), "site 7")
			}
			proven := jwt.MapClaims{"proven": true}
			if !direct(old, proven) || direct(old, nil) {
				t.Error("passes with and without the challenge are not told apart")
			}
			keys.keys.Store(&map[string]ed25519.PublicKey{"k2": fresh.key.Public().(ed25519.PublicKey)})
			until.True(t, "the revoked key is not believed, and the new one is", func() bool { return !direct(old, proven) && direct(fresh, proven) })
			keys.Close()
			until.True(t, "without keys the gate decides", func() bool { return !direct(fresh, proven) })
		})
	}
}

// With a gate: a visitor gets in through it, and then reaches the site directly.
func TestEdgesWithAGate(t *testing.T) {
	t.Parallel()
	for name, start := range edges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, gate := newGate(t, named(t, "gate").URL, "--capacity", "1", "--trusted-proxies", "127.0.0.1", "--pass-ttl", "5m")
			s.start()
			p := newPerson(t, start(t, edgeOf{site: named(t, "site").URL, gate: gate, keys: "http://" + s.addr, keysFor: 60}))
			until.True(t, "the visitor reaches the site", func() bool { return string(p.get("/", "text/html").body) == "site 1" })
			if page := newPerson(t, p.front).get("/", "text/html"); !strings.Contains(string(page.body), `data-kind="waiting"`) {
				t.Errorf("the next sees %d %s", page.status, page.body)
			}
			if v := s.room("shop"); v.Inside != 1 || v.Waiting != 1 {
				t.Errorf("the room is %+v", v)
			}
		})
	}
}
