package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

func TestFileSizes(t *testing.T) {
	sizes := map[string]int{}
	for _, path := range filesWith(t, ".go") {
		sizes[path] = strings.Count(read(t, path), "\n")
	}
	checkSizes(t, "file", "split it by subject", sizes, maxFileLines, longFiles)
}

func TestFunctionSizes(t *testing.T) {
	sizes := map[string]int{}
	for _, path := range filesWith(t, ".go") {
		for name, lines := range funcSizes(t, path, read(t, path)) {
			sizes[path+" "+name] = lines
		}
	}
	checkSizes(t, "function", "give its steps names of their own", sizes, maxFuncLines, longFuncs)
}

// A folder is small enough to have one subject.
func TestFolderSizes(t *testing.T) {
	sizes := map[string]int{}
	for _, file := range filesWith(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") {
			sizes[path.Dir(file)]++
		}
	}
	for folder, count := range sizes {
		most := maxFolderFiles
		if exception, excepted := largeFolders[folder]; excepted {
			most = exception.lines
		}
		if count > most {
			t.Errorf("folder %s has %d files of code, want at most %d: split it by noun, or merge families of small files", folder, count, most)
		}
	}
}

// checkSizes compares sizes with the maximum, and exceptions with sizes: an exception that is
// larger than needed must fall.
func checkSizes(t *testing.T, what, remedy string, sizes map[string]int, most int, exceptions map[string]ratchet) {
	t.Helper()
	for name, lines := range sizes {
		exception, excepted := exceptions[name]
		switch {
		case excepted && lines > exception.lines:
			t.Errorf("%s %s has grown to %d lines; its exception is %d and may only fall: %s", what, name, lines, exception.lines, remedy)
		case !excepted && lines > most:
			t.Errorf("%s %s has %d lines, want at most %d: %s", what, name, lines, most, remedy)
		}
	}
	for name, exception := range exceptions {
		lines, exists := sizes[name]
		switch {
		case !exists || lines <= most:
			t.Errorf("%s %s needs no exception: remove it from tidy/rules_test.go", what, name)
		case lines < exception.lines:
			t.Errorf("%s %s has only %d lines: lower its exception in tidy/rules_test.go from %d", what, name, lines, exception.lines)
		case exception.reason == "":
			t.Errorf("the exception of %s %s has no reason", what, name)
		}
	}
}

// funcSizes returns the lines of each function of a file, from "func" to its
// closing brace, by name: F, or T.F for a method.
func funcSizes(t *testing.T, path, content string) map[string]int {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int{}
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			sizes[funcName(f)] = positions.Position(f.End()).Line - positions.Position(f.Pos()).Line + 1
		}
	}
	return sizes
}

func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.IndexListExpr:
			receiver = r.X
		case *ast.Ident:
			return r.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

func TestFuncSizesCountsLines(t *testing.T) {
	sizes := funcSizes(t, "x.go", "package x\n\nfunc F() {\n}\n\nfunc (t *T[A]) M() {\n\treturn\n}\n\nfunc G() {}\n")
	want := map[string]int{"F": 2, "T.M": 3, "G": 1}
	for name, lines := range want {
		if sizes[name] != lines {
			t.Errorf("%s has %d lines, want %d", name, sizes[name], lines)
		}
	}
}
