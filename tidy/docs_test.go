package tidy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// link matches [text](target) and images; the target is the first group.
	link = regexp.MustCompile(`\]\(([^()\s]+)(?:\s+"[^"]*")?\)`)
	// code matches text between single backticks.
	code = regexp.MustCompile("`([^`\n]+)`")
	// pathLike matches what may be a path: words with dots, joined by slashes.
	pathLike = regexp.MustCompile(`^(\./)?[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$`)
	// fence matches blocks of code, whose content is not prose.
	fence = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// sourceFile matches the name of a file that only a repository has.
	sourceFile = regexp.MustCompile(`\.(go|md|sh|yml|lua|html)$`)
)

func TestLinksInTheDocsExist(t *testing.T) {
	known := pathsOf(files(t))
	for _, file := range filesWith(t, ".md") {
		for _, target := range brokenLinks(file, read(t, file), known) {
			t.Errorf("%s links to %s, which does not exist", file, target)
		}
	}
}

func TestPathsInTheDocsExist(t *testing.T) {
	known := pathsOf(files(t))
	for _, file := range filesWith(t, ".md") {
		if slices.ContainsFunc(historic, func(past string) bool { return strings.HasPrefix(file, past) }) {
			continue
		}
		for _, mentioned := range missingPaths(file, read(t, file), known) {
			t.Errorf("%s mentions `%s`, which does not exist: correct the path, or what it tells about it", file, mentioned)
		}
	}
}

// pathsOf returns the files and all folders above them.
func pathsOf(files []string) map[string]bool {
	known := map[string]bool{".": true}
	for _, file := range files {
		for ; file != "." && !known[file]; file = path.Dir(file) {
			known[file] = true
		}
	}
	return known
}

// brokenLinks returns the relative links of a document to what is not known.
func brokenLinks(file, content string, known map[string]bool) (broken []string) {
	for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(content, ""), -1) {
		target, _, _ := strings.Cut(match[1], "#")
		if target == "" || strings.Contains(target, ":") { // an anchor, or another site
			continue
		}
		if !known[path.Join(path.Dir(file), target)] {
			broken = append(broken, match[1])
		}
	}
	return broken
}

// missingPaths returns what stands between backticks and looks like a path of
// the repository, but is not known. A path may start at the root or at the
// document's folder, and a file's name may stand alone.
func missingPaths(file, content string, known map[string]bool) (missing []string) {
	for _, match := range code.FindAllStringSubmatch(fence.ReplaceAllString(content, ""), -1) {
		text := match[1]
		if !looksLikePath(text, known) {
			continue
		}
		clean := path.Clean(text)
		if known[clean] || known[path.Join(path.Dir(file), clean)] || isNameOfAFile(clean, known) {
			continue
		}
		missing = append(missing, text)
	}
	return missing
}

// looksLikePath: it begins with a folder at the root, or names a source file.
func looksLikePath(text string, known map[string]bool) bool {
	if !pathLike.MatchString(text) {
		return false
	}
	first, _, nested := strings.Cut(strings.TrimPrefix(text, "./"), "/")
	return nested && known[first] || sourceFile.MatchString(text)
}

func isNameOfAFile(name string, known map[string]bool) bool {
	for file := range known {
		if strings.HasSuffix(file, "/"+name) {
			return true
		}
	}
	return false
}

func TestDocRulesFindWhatIsWrong(t *testing.T) {
	known := pathsOf([]string{"bulk/store.go", "docs/a.md", "docs/bulk/tuning.md"})
	content := "[ok](bulk/tuning.md#x) [gone](bulk/gone.md) [root](../bulk/) [site](https://example.com/x) [here](#y)\n" +
		"`bulk/store.go` `bulk/gone.go` `store.go` `gone.go` `bulk/` `example.com/x` `bulk/tuning.md` `a b/c` `application/json`\n" +
		"```\n[code](nowhere.md) `bulk/code.go`\n```\n"
	if got, want := brokenLinks("docs/a.md", content, known), []string{"bulk/gone.md"}; !slices.Equal(got, want) {
		t.Errorf("broken links %q, want %q", got, want)
	}
	if got, want := missingPaths("docs/a.md", content, known), []string{"bulk/gone.go", "gone.go"}; !slices.Equal(got, want) {
		t.Errorf("missing paths %q, want %q", got, want)
	}
}
