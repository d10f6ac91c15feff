package tidy

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasARule(t *testing.T) {
	exists := map[string]bool{}
	for _, p := range goPackages(t) {
		exists[p.folder()] = true
		if _, named := packages[p.folder()]; !named {
			t.Errorf("package %s has no rule: add it to packages in tidy/rules_test.go, with what it may import", p.folder())
		}
	}
	for name, rule := range packages {
		if !exists[name] {
			t.Errorf("the rules name package %s, which does not exist: remove it from tidy/rules_test.go", name)
		}
		for _, imported := range rule.imports {
			if _, named := packages[imported]; !named {
				t.Errorf("the rule of %s names package %s, which has no rule", name, imported)
			}
		}
	}
}

func TestImportDirections(t *testing.T) {
	for _, p := range goPackages(t) {
		for _, problem := range checkImports(p.folder(), packages[p.folder()], p.Imports, packages) {
			t.Error(problem)
		}
		checkTestImports(t, &p)
	}
}

// checkImports returns the imports of a package's code that its rule does not allow.
func checkImports(name string, r rule, imports []string, all map[string]rule) (problems []string) {
	for _, imported := range imports {
		ours := folder(imported)
		switch {
		case ours != "" && all[ours].testOnly && !r.testOnly:
			problems = append(problems, name+" imports "+ours+", which is for tests only: import it in a _test.go file")
		case ours != "" && !all[ours].testOnly && !slices.Contains(r.imports, ours):
			problems = append(problems, name+" imports "+ours+"; it may import: "+list(r.imports)+
				". Declare a small interface where it is used, and let internal/cli connect the two")
		}
		for _, refused := range r.refuses {
			if within(imported, refused) {
				problems = append(problems, name+" imports "+imported+", which its rule refuses: that belongs to a store or an edge")
			}
		}
	}
	return problems
}

// checkTestImports checks that tests import only test-only packages and what their package may
// import: tests of a package must not need packages above it.
func checkTestImports(t *testing.T, p *goPackage) {
	for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
		if ours := folder(imported); ours == "cmd/sluice" || within(ours, "internal/cli") && !within(p.folder(), "internal/cli") {
			t.Errorf("the tests of %s import %s: run the binary instead", p.folder(), ours)
		}
	}
}

func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

func list(names []string) string {
	if len(names) == 0 {
		return "no package of this module"
	}
	return strings.Join(names, ", ")
}

func TestImportRulesFindWhatIsWrong(t *testing.T) {
	all := map[string]rule{"bulk": {imports: []string{"lifecycle"}, refuses: []string{"net/http"}}, "ops": {}, "lifecycle": {}, "sim": {testOnly: true}}
	tests := []struct {
		imported string
		problem  bool
	}{
		{module + "/lifecycle", false},
		{module + "/ops", true},
		{module + "/sim", true},
		{"net/http", true},
		{"net/http/httptest", true},
		{"net/url", false},
		{"net/httpx", false},
	}
	for _, test := range tests {
		problems := checkImports("bulk", all["bulk"], []string{test.imported}, all)
		if (len(problems) > 0) != test.problem {
			t.Errorf("bulk importing %s: problems %q, want some: %v", test.imported, problems, test.problem)
		}
	}
}

func TestNoTestCodeInTheBinary(t *testing.T) {
	for path := range strings.Lines(string(output(t, "go", "list", "-deps", "./cmd/sluice"))) {
		path = strings.TrimSpace(path)
		for _, refused := range notInTheBinary {
			if within(path, refused) {
				t.Errorf("the binary holds %s: only _test.go files and test-only packages may import it", path)
			}
		}
		if ours := folder(path); ours != "" && packages[ours].testOnly {
			t.Errorf("the binary holds %s, which is for tests only", ours)
		}
	}
}

// A program that calls a server must not contain the engine's libraries: they would be its own to
// load, to audit and to update.
func TestClientsAreLight(t *testing.T) {
	for client, may := range light {
		met := map[string]bool{}
		for path := range strings.Lines(string(output(t, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./"+client))) {
			path = strings.TrimSpace(path)
			i := slices.IndexFunc(may, func(name string) bool {
				return path == name || !strings.HasPrefix(name, module) && within(path, name)
			})
			switch {
			case path == "":
			case i < 0 || within(path, otelSDK) || within(path, otelExporters):
				t.Errorf("%s draws in %s: move what needs it into the part's engine, or a package that only engine and stores import", client, path)
			default:
				met[may[i]] = true
			}
		}
		for _, name := range may {
			if !met[name] {
				t.Errorf("%s no longer needs %s: remove it from light in tidy/rules_test.go", client, name)
			}
		}
	}
}

// A template of the standard library may call any method by its name, so the linker
// keeps every method of every type: 18 MB of the binary.
func TestNoTemplatesThatKeepAllMethods(t *testing.T) {
	for _, p := range goPackages(t) {
		if packages[p.folder()].testOnly {
			continue
		}
		for _, imported := range p.Imports {
			if imported == "html/template" || imported == "text/template" {
				t.Errorf("%s imports %s, which makes the binary larger by a third: use github.com/DataDog/datadog-agent/pkg/template", p.folder(), imported)
			}
		}
	}
}

func TestPeersDoNotReachUsers(t *testing.T) {
	for _, file := range []string{"go.mod", "go.sum"} {
		for _, refused := range notInTheModule {
			if strings.Contains(read(t, file), refused) {
				t.Errorf("%s names %s, which only a module of its own may require, such as bench/go.mod", file, refused)
			}
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	for _, p := range goPackages(t) {
		if !slices.Contains(files(t), p.folder()+"/doc.go") {
			t.Errorf("package %s has no doc.go: add one with its subject, its nouns and what it guarantees", p.folder())
			continue
		}
		first, _, _ := strings.Cut(read(t, p.folder()+"/doc.go"), "\n")
		if !strings.HasPrefix(first, "// Package ") && !strings.HasPrefix(first, "// Command ") {
			t.Errorf("%s/doc.go begins with %q: want the package's comment, // Package … or // Command …", p.folder(), first)
		}
	}
}
