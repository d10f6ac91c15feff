package e2e

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/http.md again")

// described is an operation of /openapi.json.
type described struct {
	Method, Path, Summary, Description string
	Tags                               []string
	Parameters                         []struct{ Name, In, Description string }
}

// docs/http.md is what a server says of its API.
func TestHTTPReference(t *testing.T) {
	t.Parallel()
	s := withAccounts(t)
	s.start()
	var document struct {
		Paths map[string]map[string]described
	}
	if err := s.as(adminToken, "GET", "/openapi.json", "").json(&document); err != nil {
		t.Fatal(err)
	}
	groups := map[string][]described{}
	for path, methods := range document.Paths {
		for method, of := range methods {
			of.Method, of.Path = strings.ToUpper(method), path
			groups[strings.Join(of.Tags, ", ")] = append(groups[strings.Join(of.Tags, ", ")], of)
		}
	}
	path, want := filepath.Join("..", "docs", "http.md"), httpReference(groups)
	if *update {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/http.md is not what a server says (%v): run make generate", err)
	}
}

// httpReference writes a table for each group of operations.
func httpReference(groups map[string][]described) []byte {
	var b bytes.Buffer
	b.WriteString("# HTTP\n\nOf a server's `/openapi.json`, which has the fields of requests and answers too, by `make generate`. Errors are " +
		"[problems](bulk/api.md#errors); [access](access.md) has the roles.\n")
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		all := groups[group]
		slices.SortFunc(all, func(x, y described) int {
			return cmp.Or(strings.Compare(x.Path, y.Path), strings.Compare(x.Method, y.Method))
		})
		fmt.Fprintf(&b, "\n## %s\n\n| request | what it does |\n|---|---|\n", group)
		for i := range all {
			of := &all[i]
			var query []string
			for _, p := range of.Parameters {
				if p.In == "query" {
					query = append(query, "`"+p.Name+"`: "+strings.TrimSuffix(p.Description, "."))
				}
			}
			says := strings.TrimSuffix(of.Summary, ".") + ". " + of.Description
			if len(query) > 0 {
				says = strings.TrimSpace(says) + " Query: " + strings.Join(query, "; ") + "."
			}
			fmt.Fprintf(&b, "| `%s %s` | %s |\n", of.Method, of.Path, strings.TrimSpace(strings.NewReplacer("|", `\|`, "\n", " ").Replace(says)))
		}
	}
	return b.Bytes()
}
