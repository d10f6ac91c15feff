package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/sluice-project/sluice"

// root is the repository, seen from this package's tests.
const root = ".."

// output runs a command in the repository and returns its output.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return out
}

var (
	filesOnce sync.Once
	filesList []string
)

// files returns the files of the repository, including those not yet added and without ignored
// ones, as paths with slashes.
func files(t *testing.T) []string {
	t.Helper()
	filesOnce.Do(func() {
		// The checkout may belong to another user, for example in a container.
		out := output(t, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if _, err := os.Stat(filepath.Join(root, path)); err == nil {
				filesList = append(filesList, path)
			}
		}
		watchFolders(t, filesList)
	})
	if len(filesList) == 0 {
		t.Fatal("git lists no file: run the tests in a checkout of the repository")
	}
	return filesList
}

// watchFolders reads every folder. go test caches results until a file or folder that a test has
// read changes, so a new file makes it run again; it does not know which files git and go list
// read.
func watchFolders(t *testing.T, files []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, file := range files {
		folder := filepath.Join(root, filepath.Dir(file))
		if seen[folder] {
			continue
		}
		seen[folder] = true
		if _, err := os.ReadDir(folder); err != nil {
			t.Fatal(err)
		}
	}
}

// filesWith returns the files that end in one of the suffixes.
func filesWith(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var found []string
	for _, path := range files(t) {
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) {
				found = append(found, path)
				break
			}
		}
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// goPackage is the part of a package in the output of "go list".
type goPackage struct {
	ImportPath   string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// folder is the package's folder in the repository.
func (p *goPackage) folder() string { return folder(p.ImportPath) }

// folder returns the folder of one of our packages, or empty for others.
func folder(importPath string) string {
	if importPath == module {
		return "."
	}
	path, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	return path
}

var (
	packagesOnce sync.Once
	packagesList []goPackage
)

// goPackages returns the packages of the module, and of modules within it.
func goPackages(t *testing.T) []goPackage {
	t.Helper()
	files(t)
	packagesOnce.Do(func() {
		decoder := json.NewDecoder(bytes.NewReader(output(t, "go", "list", "-json", "./...")))
		for {
			var p goPackage
			err := decoder.Decode(&p)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			packagesList = append(packagesList, p)
		}
		packagesList = append(packagesList, nestedPackages(t)...)
	})
	return packagesList
}

// nestedPackages returns the packages of modules in folders below the root. It reads their source:
// "go list" would first download their requirements.
func nestedPackages(t *testing.T) []goPackage {
	t.Helper()
	var modules []string
	for _, file := range filesWith(t, "/go.mod") {
		modules = append(modules, path.Dir(file))
	}
	found := map[string]*goPackage{}
	for _, file := range filesWith(t, ".go") {
		folder := path.Dir(file)
		if !slices.ContainsFunc(modules, func(m string) bool { return within(folder, m) }) {
			continue
		}
		if found[folder] == nil {
			found[folder] = &goPackage{ImportPath: module + "/" + folder}
		}
		found[folder].addFile(t, file)
	}
	var packages []goPackage
	for _, name := range slices.Sorted(maps.Keys(found)) {
		packages = append(packages, *found[name])
	}
	return packages
}

func (p *goPackage) addFile(t *testing.T, file string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	imports := &p.Imports
	if strings.HasSuffix(file, "_test.go") {
		imports = &p.TestImports
	} else {
		p.GoFiles = append(p.GoFiles, path.Base(file))
	}
	for _, i := range parsed.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		*imports = append(*imports, imported)
	}
}
