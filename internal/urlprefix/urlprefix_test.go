package urlprefix

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for prefix, right := range map[string]bool{
		"https://api.example.com": true, "http://127.0.0.1:8081/": true, "https://[::1]:8443/a/b": true, "HTTPS://api.example.com/hooks/": true,
		"": false, "api.example.com": false, "/hooks": false, "ftp://x/": false, "https://": false, "https://u@x/": false, "https://u:p@x/": false,
		"https://x/?a=b": false, "https://x/?": false, "https://x/#a": false, "https://x/a/../b": false, "https://x/%2e%2e/": false,
		"https://x/a//b": false, "https:x": false, "https://x:port/": false, "https://x:70000/": false,
	} {
		if err := Check(prefix); (err == nil) != right {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestJoin(t *testing.T) {
	const prefix, root = "https://api.example.com/hooks", "http://127.0.0.1:8081"
	for _, test := range []struct{ prefix, asked, want string }{
		{prefix, "", prefix},
		{prefix + "/", "", prefix + "/"},
		{prefix, "/charge", prefix + "/charge"},
		{prefix, "charge", prefix + "/charge"},
		{prefix + "/", "/charge/", prefix + "/charge/"},
		{prefix, "a/b c?x=../..&y=%2e", prefix + "/a/b%20c?x=../..&y=%2e"},
		{prefix, "?x=1", prefix + "?x=1"},
		{prefix, "%41;v=1", prefix + "/%41;v=1"},
		{prefix, "z%C3%BCrich/...", prefix + "/z%C3%BCrich/..."},
		{prefix, "https://API.Example.com:443/hooks/charge", prefix + "/charge"},
		{prefix, prefix, prefix},
		{prefix + "/", prefix, prefix},
		{root, "", root},
		{root, "/", root + "/"},
		{root, "x", root + "/x"},
		{root, root + "/x", root + "/x"},
	} {
		if got, err := Join(test.prefix, test.asked); err != nil || got != test.want {
			t.Errorf("%q below %s is %q, %v; want %q", test.asked, test.prefix, got, err, test.want)
		}
	}
	for _, asked := range []string{
		"http://api.example.com/hooks/x", "https://api.example.com:8443/hooks/x", "https://evil.example/hooks/x", "https://api.example.com/",
		"https://api.example.com/hooks2", "https://api.example.com/hook", "https://api.example.com.evil.example/hooks/x", "https://api.example.com@evil.example/hooks",
		"https://u:p@api.example.com/hooks/x", "https://api.example.com\\@evil.example/hooks", "//evil.example/x", "/\\evil.example/x", "https:/hooks/x", "https:hooks",
		"https:///hooks/x", "javascript:x", "a:b", "x#y", "#", "..", "../x", "/../x", "a/../../x", "a/..", ".", "a/./b", "%2e%2e/x", "%2E./x", ".%2e/x", "a%2f..%2fx",
		"a%5c..%5cx", `a\..\x`, "..;/x", "..;a=b/x", ";/x", "%3b", "%252e%252e/x", "%c0%ae%c0%ae/x", "a%00b", "a%0d%0ab", "a\nb", "a//b", "a%", "a%zz", "x?a b",
		"https://api.example.com/hooks/../x", "https://api.example.com/%68ooks/x",
	} {
		if got, err := Join(prefix, asked); err == nil {
			t.Errorf("%q below the prefix is %q", asked, got)
		}
	}
}

// What Join returns is below the prefix for every reader, and stable.
func FuzzJoin(f *testing.F) {
	for _, prefix := range []string{"https://api.example.com/hooks", "http://127.0.0.1:8081", "http://[::1]/a/"} {
		for _, asked := range []string{"", "x", "/x?y", "../x", "%2e%2e/x", "..;/", "//x", `\\x`, "https://api.example.com/hooks/x", "https://u@x/", "a:b", "?x", "x#y", "%u002e"} {
			f.Add(prefix, asked)
		}
	}
	f.Fuzz(func(t *testing.T, prefix, asked string) {
		joined, err := Join(prefix, asked)
		if err != nil {
			return
		}
		if again, err := Join(prefix, joined); err != nil || again != joined {
			t.Fatalf("%q below %q is %q, and that is %q, %v", asked, prefix, joined, again, err)
		}
		base, err := url.Parse(prefix)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequest(http.MethodPost, joined, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, host := request.URL, strings.TrimSuffix(base.Host, ":") // as NewRequest does
		if u.Scheme != base.Scheme || u.Host != host || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q below %q is %q", asked, prefix, joined)
		}
		// The path is below the prefix also for one who decodes it twice, cuts parameters, takes
		// backslashes for slashes and cleans it.
		read := strings.ReplaceAll(u.Path, `\`, "/")
		if twice, err := url.PathUnescape(read); err == nil {
			read = twice
		}
		var names []string
		for segment := range strings.SplitSeq(read, "/") {
			name, _, _ := strings.Cut(segment, ";")
			names = append(names, name)
		}
		cleaned := path.Clean("/" + strings.Join(names, "/"))
		root, _, _ := strings.Cut(strings.TrimSuffix(base.Path, "/"), ";")
		if cleaned != path.Clean("/"+root) && !strings.HasPrefix(cleaned, strings.TrimSuffix(path.Clean("/"+root), "/")+"/") && !strings.Contains(base.Path, ";") {
			t.Fatalf("%q below %q is read as %q", asked, prefix, cleaned)
		}
	})
}
