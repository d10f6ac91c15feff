package tidy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// heading matches the headings of a document; the first group is the level.
var heading = regexp.MustCompile(`(?m)^(#+) `)

// The README is short: the result first, details in docs.
func TestReadmeIsShort(t *testing.T) {
	if words := len(strings.Fields(read(t, "README.md"))); words > maxReadmeWords {
		t.Errorf("README.md has %d words, want at most %d: move details to docs/", words, maxReadmeWords)
	}
	if lines := strings.Count(read(t, "docs/ARCHITECTURE.md"), "\n"); lines > maxArchitectureLines {
		t.Errorf("docs/ARCHITECTURE.md has %d lines, want at most %d: what belongs to one part stands beside it", lines, maxArchitectureLines)
	}
}

// A document in Korean has the headings and commands of the one in English.
func TestTranslationsAreInStep(t *testing.T) {
	for _, korean := range files(t) {
		name, translated := strings.CutSuffix(korean, ".ko.md")
		if !translated {
			continue
		}
		for _, problem := range outOfStep(read(t, name+".md"), read(t, korean)) {
			t.Errorf("%s: %s", korean, problem)
		}
	}
}

// Those who begin, and those who follow a guide, may do so in Korean.
func TestGuidesAreInKorean(t *testing.T) {
	all := files(t)
	for _, name := range all {
		guide := strings.HasPrefix(name, "docs/guides/") || slices.Contains([]string{"README.md", "docs/start.md", "docs/install.md", "docs/backup.md", "docs/room/proxies.md"}, name)
		if !guide || strings.HasSuffix(name, ".ko.md") {
			continue
		}
		korean := strings.TrimSuffix(name, ".md") + ".ko.md"
		if !slices.Contains(all, korean) || !strings.Contains(read(t, name), "("+path.Base(korean)+")") {
			t.Errorf("%s has no link to a %s that is there", name, korean)
		}
	}
}

// outOfStep returns how a translation differs from a document, apart from its prose.
func outOfStep(document, translation string) (problems []string) {
	if want, got := levels(document), levels(translation); !slices.Equal(got, want) {
		problems = append(problems, "its headings have the levels "+strings.Join(got, " ")+", want "+strings.Join(want, " "))
	}
	want, got := blocks(document), blocks(translation)
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			problems = append(problems, "it lacks the commands\n"+want[i])
		case i >= len(want):
			problems = append(problems, "it has more commands:\n"+got[i])
		case want[i] != got[i]:
			problems = append(problems, "it has the commands\n"+got[i]+"want\n"+want[i])
		}
	}
	return problems
}

// levels returns the levels of a document's headings, in order.
func levels(document string) (found []string) {
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(document, ""), -1) {
		found = append(found, match[1])
	}
	return found
}

// blocks returns the code blocks of a document without their comments, which may be
// translated.
func blocks(document string) (found []string) {
	comment := regexp.MustCompile(`(?m)\s*(^|\s)#.*$`)
	for _, block := range fence.FindAllString(document, -1) {
		found = append(found, comment.ReplaceAllString(block, ""))
	}
	return found
}

func TestReadmeRulesFindWhatIsWrong(t *testing.T) {
	document := "# A\n\n## B\n\n```sh\nmake build  # builds\n```\n"
	for translation, want := range map[string]int{
		document: 0,
		"# 가\n\n## 나\n\n```sh\nmake build  # 빌드\n```\n": 0,
		"# 가\n\n```sh\nmake build\n```\n":               1,
		"# 가\n\n## 나\n\n```sh\nmake test\n```\n":        1,
		"# 가\n\n## 나\n":                                 1,
	} {
		if got := outOfStep(document, translation); len(got) != want {
			t.Errorf("%q: %q, want %d problems", translation, got, want)
		}
	}
}
