package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// later matches notes of unfinished work. It is put together, so that it does not match itself.
	later = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	// machinePath matches paths that exist on one machine only.
	machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_./}-])/(work|root|home|Users)/`)
	// sources are the kinds of files that people write; data files may contain anything.
	sources = []string{".go", ".md", ".sh", ".yml", ".yaml", ".html", ".css", ".js", ".py", ".lua", ".mod", "Makefile", ".ci/run"}
)

func TestNothingIsLeftForLater(t *testing.T) {
	for _, path := range filesWith(t, sources...) {
		if strings.HasSuffix(path, ".md") { // documents may describe the rule
			continue
		}
		for number, line := range lines(read(t, path)) {
			if later.MatchString(line) {
				t.Errorf("%s:%d: %s: do it now, or open an issue", path, number, strings.TrimSpace(line))
			}
		}
	}
}

func TestNoPathsOfOneMachine(t *testing.T) {
	for _, path := range filesWith(t, sources...) {
		for number, line := range lines(read(t, path)) {
			if found := machinePath.FindString(line); found != "" {
				t.Errorf("%s:%d: %q is a path of one machine: use one relative to the repository", path, number, found)
			}
		}
	}
}

// lines returns the lines of content, by number.
func lines(content string) map[int]string {
	numbered := map[int]string{}
	for i, line := range strings.Split(content, "\n") {
		numbered[i+1] = line
	}
	return numbered
}

func TestTestsNeitherSkipNorSleep(t *testing.T) {
	for _, path := range filesWith(t, ".go") {
		folder, _, _ := cutLast(path, "/")
		if !strings.HasSuffix(path, "_test.go") && !packages[folder].testOnly {
			continue
		}
		for _, problem := range testProblems(t, path, read(t, path), packages[folder].virtualTime) {
			t.Error(problem)
		}
	}
}

// testProblems finds skipped tests, and sleeps in real time. In a file that imports
// testing/synctest, and in a package where time is virtual, sleeping is allowed.
func testProblems(t *testing.T, path, content string, virtual bool) (problems []string) {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	virtual = virtual || slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at := positions.Position(call.Pos()).String()
		receiver, _ := selector.X.(*ast.Ident)
		switch name := selector.Sel.Name; {
		case name == "Skip" || name == "Skipf" || name == "SkipNow":
			problems = append(problems, at+": a test that is skipped proves nothing: make it run everywhere (scripts/need.sh installs what is missing)")
		case name == "Sleep" && receiver != nil && receiver.Name == "time" && !virtual:
			problems = append(problems, at+": sleeping is slow and still races: wait for a channel, or test in virtual time (testing/synctest)")
		}
		return true
	})
	return problems
}

// cutLast cuts s around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return "", s, false
	}
	return s[:at], s[at+len(separator):], true
}

func TestSourceRulesFindWhatIsWrong(t *testing.T) {
	body := "func TestX(t *testing.T) {\n\tt.Skip()\n\ttime.Sleep(1)\n\trows.Next()\n}\n"
	if got := testProblems(t, "x_test.go", "package x\n\nimport \"time\"\n\n"+body, false); len(got) != 2 {
		t.Errorf("problems %q, want the skip and the sleep", got)
	}
	if got := testProblems(t, "x_test.go", "package x\n\nimport \"testing/synctest\"\n\n"+body, false); len(got) != 1 {
		t.Errorf("problems %q, want the skip only: time is virtual", got)
	}
	for text, want := range map[string]bool{
		"cd /ro" + "ot/go": true, "(/wo" + "rk/main)": true, "/ho" + "me/me/x": true, "\"/ro" + "ot/": true,
		"https://example.com/wo" + "rk/x": false, "/v1/wo" + "rk/x": false, "net" + "work/x": false, "../ro" + "ot/x": false,
	} {
		if machinePath.MatchString(text) != want {
			t.Errorf("%q is a machine's path: %v, want %v", text, !want, want)
		}
	}
	for text, want := range map[string]bool{"// TO" + "DO: x": true, "FIX" + "ME": true, "// AUTO" + "DOC": false} {
		if later.MatchString(text) != want {
			t.Errorf("%q is left for later: %v, want %v", text, !want, want)
		}
	}
}
