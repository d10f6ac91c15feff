package tidy

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goTest is one "go test" command of the Makefile.
type goTest struct {
	// folder is where it runs, as a path in the repository.
	folder string
	// tags are its build tags; -race is the tag race.
	tags []string
	// packages are its arguments.
	packages []string
	// run and skip choose the functions; nil chooses all.
	run, skip *regexp.Regexp
	// long reports whether SLUICE_LONG=1 is set.
	long bool
}

// sized is what a test says whose size varies with SLUICE_LONG.
var sized = regexp.MustCompile(`"SLUICE_LONG"|rapidtest\.Checks\(|\blonger\(`)

// tagOfImport and tagOfCommand are the requirements of a test file beyond Go, an import or a
// command that it runs, with the build tag of each.
var (
	tagOfImport = map[string]string{
		module + "/internal/testkit/redistest": "redis",
		module + "/internal/testkit/proxytest": "proxies",
		module + "/e2e/cluster/netlab":         "cluster",
	}
	tagOfCommand = map[string]string{`"kcat"`: "kcat", `"nginx"`: "proxies", `"haproxy"`: "proxies", `"caddy"`: "proxies"}
)

// "make test-all" runs every test, fuzz target and example of the repository, and files of tests whose size
// varies in their long size.
func TestMakeTestAllRunsEveryTest(t *testing.T) {
	commands := goTests(string(output(t, "make", "--no-print-directory", "--dry-run", "test-all")))
	if len(commands) == 0 {
		t.Fatal(`"make --dry-run test-all" shows no go test command`)
	}
	for _, file := range filesWith(t, "_test.go") {
		content := read(t, file)
		functions := testFunctions(t, file, content)
		if sized.MatchString(content) && path.Dir(file) != "tidy" && !slices.ContainsFunc(commands, func(c goTest) bool { return c.long && c.runsAny(t, file, functions) }) {
			t.Errorf("%s: make test-all does not run its long size: add its package or its functions to LONG or SIZED of the Makefile", file)
		}
		for _, name := range functions {
			if !slices.ContainsFunc(commands, func(c goTest) bool { return c.runs(t, file, name) }) {
				t.Errorf("%s: make test-all does not run %s: add its build tag or its package to a go test line of the Makefile", file, name)
			}
		}
		if len(functions) == 0 && !slices.ContainsFunc(commands, func(c goTest) bool { return c.builds(t, file) }) {
			t.Errorf("%s: make test-all does not build it: add its build tag to a go test line of the Makefile", file)
		}
	}
}

// A test that needs more than Go has a build tag, so that "make test" runs anywhere.
func TestTestsHaveTheTagOfWhatTheyNeed(t *testing.T) {
	for _, file := range filesWith(t, "_test.go") {
		if problem := missingTag(t, file, read(t, file)); problem != "" {
			t.Error(problem)
		}
	}
}

// missingTag returns the error in the tags of a test file, or "".
func missingTag(t *testing.T, file, content string) string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if path.Dir(file) == "tidy" {
		return ""
	}
	header, _, _ := strings.Cut(content, "\npackage ")
	tagged := func(tag string) bool {
		return regexp.MustCompile(`(?m)^//go:build .*\b` + tag + `\b`).MatchString(header)
	}
	for _, imported := range parsed.Imports {
		if tag := tagOfImport[strings.Trim(imported.Path.Value, `"`)]; tag != "" && !tagged(tag) {
			return file + " imports " + imported.Path.Value + ": begin it with //go:build " + tag
		}
	}
	problem := ""
	ast.Inspect(parsed, func(node ast.Node) bool {
		if text, ok := node.(*ast.BasicLit); ok {
			if tag := tagOfCommand[text.Value]; tag != "" && !tagged(tag) {
				problem = file + " runs " + text.Value + ": begin it with //go:build " + tag
			}
		}
		return true
	})
	return problem
}

// goTests returns the go test commands among lines of make's output.
func goTests(lines string) (commands []goTest) {
	for line := range strings.Lines(lines) {
		folder := "."
		for command := range strings.SplitSeq(line, "&&") {
			words := strings.Fields(strings.ReplaceAll(command, "'", ""))
			long := false
			for len(words) > 0 && strings.Contains(words[0], "=") { // environment variables
				long = long || words[0] == "SLUICE_LONG=1"
				words = words[1:]
			}
			switch {
			case len(words) == 2 && words[0] == "cd":
				folder = words[1]
			case len(words) > 2 && words[0] == "go" && words[1] == "test":
				test := parseGoTest(folder, words[2:])
				test.long = long
				commands = append(commands, test)
			}
		}
	}
	return commands
}

func parseGoTest(folder string, words []string) goTest {
	c := goTest{folder: folder}
	for i := 0; i < len(words); i++ {
		if !strings.HasPrefix(words[i], "-") {
			c.packages = append(c.packages, words[i])
			continue
		}
		name, value, assigned := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		if !assigned && slices.Contains([]string{"tags", "run", "skip", "timeout", "p", "parallel", "count", "bench"}, name) && i+1 < len(words) {
			i++
			value = words[i]
		}
		switch name {
		case "race":
			c.tags = append(c.tags, "race")
		case "tags":
			c.tags = append(c.tags, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "run":
			c.run = topLevel(value)
		case "skip":
			c.skip = topLevel(value)
		}
	}
	return c
}

// topLevel returns the part of a -run pattern that chooses functions.
func topLevel(pattern string) *regexp.Regexp {
	first, _, _ := strings.Cut(pattern, "/")
	return regexp.MustCompile(first)
}

// runs reports whether the command runs a function of a file.
func (c goTest) runs(t *testing.T, file, name string) bool {
	t.Helper()
	return (c.run == nil || c.run.MatchString(name)) && (c.skip == nil || !c.skip.MatchString(name)) && c.builds(t, file)
}

// runsAny reports whether the command runs one of the functions, or builds the file if it has none.
func (c goTest) runsAny(t *testing.T, file string, names []string) bool {
	t.Helper()
	if len(names) == 0 {
		return c.builds(t, file)
	}
	return slices.ContainsFunc(names, func(name string) bool { return c.runs(t, file, name) })
}

// builds reports whether the file is part of the tests that the command builds.
func (c goTest) builds(t *testing.T, file string) bool {
	t.Helper()
	if !slices.ContainsFunc(c.packages, func(p string) bool { return c.names(t, p, path.Dir(file)) }) {
		return false
	}
	system := build.Default
	system.BuildTags = c.tags
	matches, err := system.MatchFile(filepath.Join(root, filepath.FromSlash(path.Dir(file))), path.Base(file))
	if err != nil {
		t.Fatal(err)
	}
	return matches
}

// names reports whether an argument of the command names the package in a folder.
func (c goTest) names(t *testing.T, argument, folder string) bool {
	t.Helper()
	if ours, ok := strings.CutPrefix(argument, module+"/"); ok {
		return ours == folder
	}
	parent, below := strings.CutSuffix(argument, "/...")
	parent = path.Join(c.folder, parent)
	if !below {
		return parent == folder
	}
	return moduleOf(t, folder) == moduleOf(t, parent) && (parent == "." || within(folder, parent))
}

// moduleOf returns the folder of the module that a folder belongs to.
func moduleOf(t *testing.T, folder string) string {
	t.Helper()
	for ; folder != "."; folder = path.Dir(folder) {
		if slices.Contains(files(t), folder+"/go.mod") {
			return folder
		}
	}
	return "."
}

// testFunctions returns the functions of a file that go test runs, without benchmarks.
func testFunctions(t *testing.T, file, content string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range parsed.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if ok && f.Recv == nil && testName.MatchString(f.Name.Name) && f.Name.Name != "TestMain" {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Example)($|[^a-z])`)

func TestSuiteRulesFindWhatIsWrong(t *testing.T) {
	commands := goTests("echo go test ./none\nSLUICE_LONG=1 go test -race -count=1 -tags redis,kcat -p 3 " + module + "/bulk ./tidy\n" +
		"cd bench && go vet ./... && go test -run '^TestA$/x' -timeout 1m ./...\n")
	if len(commands) != 2 || !slices.Equal(commands[0].tags, []string{"race", "redis", "kcat"}) ||
		!slices.Equal(commands[0].packages, []string{module + "/bulk", "./tidy"}) || commands[1].folder != "bench" || !commands[0].long || commands[1].long {
		t.Fatalf("the commands are %+v", commands)
	}
	for _, test := range []struct {
		command    int
		file, name string
		want       bool
	}{
		{0, "tidy/suite_test.go", "TestB", true},
		{0, "tidy/doc.go", "TestB", true},
		{0, "sim/world_test.go", "TestB", false},
		{0, "e2e/kcat_test.go", "TestB", false},
		{1, "bench/doc.go", "TestA", true},
		{1, "bench/doc.go", "TestB", false},
		{1, "tidy/doc.go", "TestA", false},
	} {
		if got := commands[test.command].runs(t, test.file, test.name); got != test.want {
			t.Errorf("command %d runs %s of %s: %v, want %v", test.command, test.name, test.file, got, test.want)
		}
	}
	all := goTest{folder: ".", packages: []string{"./..."}}
	if all.builds(t, "e2e/kcat_test.go") || all.builds(t, "e2e/clients/doc.go") || !all.builds(t, "e2e/doc.go") {
		t.Error("go test ./... builds files with tags, or those of another module, or not its own")
	}
	body := "package x\n\nimport _ \"" + module + "/internal/testkit/redistest\"\n"
	for content, wrong := range map[string]bool{
		body: true, "//go:build redis\n\n" + body: false, "//go:build redis && long\n\n" + body: false, "//go:build long\n\n" + body: true,
		"package x\n\nvar x = \"kcat\"\n": true, "package x\n\n// \"kcat\"\n": false,
	} {
		if got := missingTag(t, "x_test.go", content); (got != "") != wrong {
			t.Errorf("%q: %q, want a problem: %v", content, got, wrong)
		}
	}
	names := testFunctions(t, "x_test.go", "package x\n\nfunc TestA() {}\nfunc TestMain() {}\nfunc Testing() {}\nfunc FuzzB() {}\nfunc BenchmarkC() {}\nfunc (x) TestD() {}\n")
	if !slices.Equal(names, []string{"TestA", "FuzzB"}) {
		t.Errorf("the functions are %q", names)
	}
}
