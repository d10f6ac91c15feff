package tidy

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrase is a wording that this repository does not use.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// phrases are looked for in comments, in strings of Go code and in documents. Each is put
// together so that it does not match itself.
var phrases = []phrase{
	{regexp.MustCompile(`(?i)\b(tell|told)s? ` + `whether\b`), `write "reports whether"`},
	{regexp.MustCompile(`(?i)\ban` + `ew\b`), `write "again", or leave it out`},
	{regexp.MustCompile(`(?i)\bmean` + `while\b`), `write "in the meantime", or leave it out`},
	{regexp.MustCompile(`(?i)\b(hold|held|holding)s? ` + `up\b`), `write "delay", or "wait"`},
}

// headless matches sentences of a comment whose subject is a bare clause.
var headless = phrase{
	regexp.MustCompile(`(?:^|[.:;!] )(?:(?:Who|Whose|What) [a-z]|That (?:a|an|the|it|they|no|nothing|nobody|each|every|all|some|there) )[^.?]*`),
	`give the sentence a subject: "visitors who …", "records that …"`,
}

// Comments, messages and documents use the words of docs and books that readers know.
func TestWords(t *testing.T) {
	var problems []string
	for _, file := range filesWith(t, ".go", ".md") {
		if !slices.ContainsFunc(historic, func(past string) bool { return strings.HasPrefix(file, past) }) {
			problems = append(problems, wordProblems(t, file, read(t, file))...)
		}
	}
	if len(problems) > maxPhrases {
		t.Errorf("%d phrases that this repository does not use, want at most %d; some of them:\n%s",
			len(problems), maxPhrases, strings.Join(problems[:min(len(problems), 100)], "\n"))
	}
}

// wordProblems returns the phrases in a Go file's comments and strings, or in a document, with
// their replacements.
func wordProblems(t *testing.T, file, content string) (problems []string) {
	t.Helper()
	look := func(at, text string, phrases ...phrase) {
		for _, p := range phrases {
			for _, found := range p.pattern.FindAllString(text, -1) {
				problems = append(problems, at+": "+found+": "+p.instead)
			}
		}
	}
	for _, line := range strings.Split(content, "\n") {
		look(file, line, phrases...)
	}
	if strings.HasSuffix(file, ".go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, comment := range parsed.Comments {
			look(file, strings.Join(strings.Fields(comment.Text()), " "), headless)
		}
	}
	return problems
}

func TestWordRulesFindWhatIsWrong(t *testing.T) {
	for content, want := range map[string]int{
		"package x\n\n// Closed tells " + "whether it is closed.\n":                                      1,
		"package x\n\n// Closed reports whether it is closed.\n":                                         0,
		"package x\n\nvar a = \"mean" + "while\"\n":                                                      1,
		"package x\n\n// It begins an" + "ew.\n":                                                         1,
		"package x\n\n// Who has a pass is let through.\n":                                               1,
		"package x\n\n// Visitors who have a pass are let through. What was\n// acknowledged is kept.\n": 1,
		"package x\n\n// That nothing is left holds.\n":                                                  1,
		"package x\n\n// That is what it does. What follows?\n":                                          1,
		"package x\n\n// F returns what it is told.\n":                                                   0,
	} {
		if got := wordProblems(t, "x.go", content); len(got) != want {
			t.Errorf("%q has the problems %q, want %d", content, got, want)
		}
	}
}
