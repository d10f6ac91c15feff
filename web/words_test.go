package web

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var verb = regexp.MustCompile(`%[a-z]`)

// Each text is there in all languages, with the same arguments, and is used.
func TestLanguagesHaveTheSameTexts(t *testing.T) {
	used := sources(t)
	for _, l := range languages[1:] {
		for key, text := range languages[0].words {
			translated, ok := l.words[key]
			if !ok {
				t.Errorf("%s has no text %q", l.code, key)
			}
			if want, got := verb.FindAllString(text, -1), verb.FindAllString(translated, -1); !slices.Equal(got, want) {
				t.Errorf("%s: %q has the verbs %v, want %v", l.code, key, got, want)
			}
		}
		for key := range l.words {
			if languages[0].words[key] == "" {
				t.Errorf("%q is a text in %s only", key, l.code)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(languages[0].words)) {
		family, _, _ := strings.Cut(key, ".")
		if !strings.Contains(used, `"`+key+`"`) && !strings.Contains(used, `"`+family+`."`) {
			t.Errorf("the text %q is not used", key)
		}
	}
}

var asked = regexp.MustCompile(`\bt\(? ?"([a-z0-9_]+\.[a-z0-9_]+)"`)

func TestTextsThatAreAskedForExist(t *testing.T) {
	for _, found := range asked.FindAllStringSubmatch(sources(t), -1) {
		if languages[0].words[found[1]] == "" {
			t.Errorf("there is no text %q", found[1])
		}
	}
}

// sources returns the code and the templates, without the texts and tests.
func sources(t *testing.T) string {
	var all strings.Builder
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "words_") || strings.HasSuffix(name, "_test.go") ||
			!strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".html") {
			return err
		}
		content, err := os.ReadFile(path)
		all.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
