package room

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRuleMatches(t *testing.T) {
	for _, test := range []struct {
		rule               Rule
		host, path, method string
		want               bool
	}{
		{Rule{Host: "shop.example.com"}, "shop.example.com", "/", "GET", true},
		{Rule{Host: "shop.example.com"}, "SHOP.Example.com:8443", "/", "GET", true},
		{Rule{Host: "Shop.example.com"}, "shop.example.com.", "/", "GET", true},
		{Rule{Host: "shop.example.com"}, "a.shop.example.com", "/", "GET", false},
		{Rule{Host: "shop.example.com"}, "", "/", "GET", false},
		{Rule{Host: "*.example.com"}, "shop.example.com", "/", "GET", true},
		{Rule{Host: "*.example.com"}, "a.SHOP.EXAMPLE.com:80", "/", "GET", true},
		{Rule{Host: "*.example.com"}, "example.com", "/", "GET", false},
		{Rule{Host: "*.example.com"}, ".example.com", "/", "GET", false},
		{Rule{Host: "*.example.com"}, "badexample.com", "/", "GET", false},
		{Rule{Host: "::1"}, "[::1]:80", "/", "GET", true},
		{Rule{Host: "::1"}, "[::1]", "/", "GET", true},
		{Rule{Host: "10.0.0.1"}, "10.0.0.1:80", "/", "GET", true},
		{Rule{Path: "/cart"}, "h", "/cart", "GET", true},
		{Rule{Path: "/cart"}, "h", "/cart/", "GET", false},
		{Rule{Path: "/cart"}, "h", "/carts", "GET", false},
		{Rule{Path: "/cart/*"}, "h", "/cart", "GET", true},
		{Rule{Path: "/cart/*"}, "h", "/cart/", "GET", true},
		{Rule{Path: "/cart/*"}, "h", "/cart/1/2", "GET", true},
		{Rule{Path: "/cart/*"}, "h", "/carts", "GET", false},
		{Rule{Path: "/*"}, "h", "/anything", "GET", true},
		{Rule{Path: "/*"}, "h", "/", "GET", true},
		{Rule{Method: "POST"}, "h", "/", "POST", true},
		{Rule{Method: "POST"}, "h", "/", "GET", false},
		{Rule{Host: "h", Path: "/a", Method: "GET"}, "h", "/a", "GET", true},
		{Rule{Host: "h", Path: "/a", Method: "GET"}, "i", "/a", "GET", false},
		{Rule{Host: "h", Path: "/a", Method: "GET"}, "h", "/b", "GET", false},
	} {
		if got := test.rule.Matches(test.host, test.path, test.method); got != test.want {
			t.Errorf("%+v matches %q %q %s: %v", test.rule, test.host, test.path, test.method, got)
		}
	}
}

func TestNeedsPass(t *testing.T) {
	all := Settings{}
	but := Settings{Bypass: []Rule{{Path: "/static/*"}, {Path: "/health"}, {Path: "/up/"}, {Host: "api.example.com", Method: "GET"}}}
	some := Settings{Routes: []Rule{{Path: "/checkout/*"}, {Path: "/cart", Method: "POST"}}, Bypass: []Rule{{Path: "/checkout/help"}}}
	root := Settings{Routes: []Rule{{Path: "/"}}}
	for _, test := range []struct {
		settings           Settings
		host, path, method string
		want               bool
	}{
		{all, "h", "/", "GET", true},
		{but, "h", "/", "GET", true},
		{but, "h", "/static/app.js", "GET", false},
		{but, "h", "/static", "GET", false},
		{but, "h", "/staticx", "GET", true},
		{but, "h", "/health", "GET", false},
		{but, "h", "/health/", "GET", true},
		{but, "h", "/up/", "GET", false},
		{but, "h", "/up", "GET", true},
		{but, "API.example.com:443", "/x", "GET", false},
		{but, "api.example.com", "/x", "POST", true},
		// Evasion: a bypass applies only if every reading of the path is in it.
		{but, "h", "/static/../checkout", "GET", true},
		{but, "h", `/static/..\checkout`, "GET", true},
		{but, "h", "/static/..;x/checkout", "GET", true},
		{but, "h", "/checkout/../static/a", "GET", true},
		{but, "h", "//static/a", "GET", true},
		{but, "h", "/static/./a", "GET", false},
		{some, "h", "/", "GET", false},
		{some, "h", "/checkout", "GET", true},
		{some, "h", "/checkout/pay", "POST", true},
		{some, "h", "/checkout/help", "GET", false},
		{some, "h", "/checkout/help/../pay", "GET", true},
		{some, "h", "/cart", "GET", false},
		{some, "h", "/cart", "POST", true},
		{some, "h", "/cart/", "POST", true},
		// And a route applies if any reading is in it.
		{some, "h", "//checkout", "GET", true},
		{some, "h", "/free/../checkout/pay", "GET", true},
		{some, "h", "/./checkout", "GET", true},
		{some, "h", `\checkout\pay`, "GET", true},
		{some, "h", "/checkout;jsessionid=1/pay", "GET", true},
		{some, "h", "/checkout/../free", "GET", true},
		{some, "h", "/CheckOut", "GET", true},
		{some, "h", "/free/../CHECKOUT/pay", "GET", true},
		{some, "h", "/checkout/HELP", "GET", true},
		{some, "h", "/CART/", "POST", true},
		{some, "h", "/checkouts", "GET", false},
		{some, "h", "", "GET", false},
		{root, "h", "/", "GET", true},
		{root, "h", "", "GET", true},
		{root, "h", "/x", "GET", false},
	} {
		if got := test.settings.NeedsPass(test.host, test.path, test.method); got != test.want {
			t.Errorf("with routes %v and bypass %v, %s %q %s: %v", test.settings.Routes, test.settings.Bypass, test.method, test.path, test.host, got)
		}
	}
}

// HEAD needs a pass where GET does.
func TestNeedsPassHead(t *testing.T) {
	reads := Settings{Routes: []Rule{{Method: "GET"}}, Bypass: []Rule{{Method: "GET", Path: "/free"}}}
	for request, want := range map[[2]string]bool{{"GET", "/a"}: true, {"HEAD", "/a"}: true, {"POST", "/a"}: false, {"GET", "/free"}: false, {"HEAD", "/free"}: true} {
		if got := reads.NeedsPass("h", request[1], request[0]); got != want {
			t.Errorf("%v: %v", request, got)
		}
	}
}

// A path needs a pass in any spelling if it does in the plain one.
func TestNeedsPassAnyWriting(t *testing.T) {
	settings := Settings{Routes: []Rule{{Path: "/paid/*"}, {Path: "/one"}}, Bypass: []Rule{{Path: "/paid/free/*"}}}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"paid", "free", "one", "x"}), 1, 4).Draw(t, "parts")
		plain := "/" + strings.Join(parts, "/")
		written := ""
		for _, part := range parts {
			before := rapid.SampledFrom([]string{"/", "//", `\`, "/./", "/y/../", `/free\..\`, "/;a/"}).Draw(t, "before")
			after := rapid.SampledFrom([]string{"", ";p=1"}).Draw(t, "after")
			if rapid.Bool().Draw(t, "in capitals") {
				part = strings.ToUpper(part)
			}
			written += before + part + after
		}
		if settings.NeedsPass("h", plain, "GET") && !settings.NeedsPass("h", written, "GET") {
			t.Fatalf("%q needs a pass, and %q does not", plain, written)
		}
	})
}

func TestRuleWrong(t *testing.T) {
	for _, test := range []struct {
		rule Rule
		part string
	}{
		{Rule{Host: "shop.example.com", Path: "/a/*", Method: "M-SEARCH"}, "ok"},
		{Rule{Host: "*.example.com"}, "ok"}, {Rule{Host: "::1"}, "ok"}, {Rule{Host: "a_b"}, "ok"},
		{Rule{Path: "/"}, "ok"}, {Rule{Path: "/*"}, "ok"}, {Rule{Path: "/a/"}, "ok"}, {Rule{Path: "/a b/ü"}, "ok"},
		{Rule{}, ""},
		{Rule{Host: "shop:80"}, ".host"}, {Rule{Host: "https://shop"}, ".host"}, {Rule{Host: "a..b"}, ".host"}, {Rule{Host: "*"}, ".host"},
		{Rule{Host: "*."}, ".host"}, {Rule{Host: "a.*.b"}, ".host"}, {Rule{Host: "-a"}, ".host"}, {Rule{Host: "a."}, ".host"},
		{Rule{Host: strings.Repeat("a.", 127) + "a"}, ".host"}, {Rule{Host: strings.Repeat("a", 64)}, ".host"}, {Rule{Host: "ü"}, ".host"},
		{Rule{Path: "a"}, ".path"}, {Rule{Path: "/a*"}, ".path"}, {Rule{Path: "/*/a"}, ".path"}, {Rule{Path: "/a?b"}, ".path"},
		{Rule{Path: "/a#b"}, ".path"}, {Rule{Path: "/a;b"}, ".path"}, {Rule{Path: `/a\b`}, ".path"}, {Rule{Path: "/a/../b"}, ".path"},
		{Rule{Path: "//"}, ".path"}, {Rule{Path: "/a//*"}, ".path"}, {Rule{Path: "/./*"}, ".path"}, {Rule{Path: "/a\nb"}, ".path"},
		{Rule{Path: "/\xff"}, ".path"}, {Rule{Path: "/" + strings.Repeat("a", 512)}, ".path"},
		{Rule{Method: "get"}, ".method"}, {Rule{Method: "GET POST"}, ".method"}, {Rule{Method: strings.Repeat("A", 33)}, ".method"},
	} {
		part, why := test.rule.wrong()
		if (why == "") != (test.part == "ok") || why != "" && part != test.part {
			t.Errorf("%+v: %s %s, want %s", test.rule, part, why, test.part)
		}
	}
}

// An accepted rule matches its own path.
func FuzzRule(f *testing.F) {
	f.Add("*.example.com", "/a/*")
	f.Add("::1", "/")
	f.Add("", "/a/b/")
	f.Fuzz(func(t *testing.T, host, path string) {
		r := Rule{Host: host, Path: path}
		if _, why := r.wrong(); why != "" {
			r.Matches(host, path, "GET")
			return
		}
		asked, at := strings.Replace(host, "*.", "below.", 1), strings.TrimSuffix(path, "*")
		if strings.Contains(host, ":") {
			asked = "[" + host + "]"
		}
		if at == "" {
			at = "/"
		}
		if !r.Matches(asked, at, "GET") || !(Settings{Routes: []Rule{r}}).NeedsPass(asked, at, "GET") ||
			(Settings{Bypass: []Rule{r}}).NeedsPass(asked, at, "GET") {
			t.Fatalf("%+v is not for %q %q", r, asked, at)
		}
	})
}
