package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheGuideIsThisCode checks that the code in docs/bulk/go.md is compiled and run here.
func TestTheGuideIsThisCode(t *testing.T) {
	guide, err := os.ReadFile("../../docs/bulk/go.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range []string{"charge.go", "main.go", "charge_test.go", "../../bulk/example_test.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString("\n" + outdent(string(source)))
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(string(guide), -1)
	if len(blocks) < 5 {
		t.Errorf("the guide has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		for part := range strings.SplitSeq(outdent(block[1]), "\n…\n") { // "…" is omitted code
			if !strings.Contains(code.String(), "\n"+strings.TrimSpace(part)+"\n") {
				t.Errorf("the guide shows code that is not in the example:\n%s", part)
			}
		}
	}
}

// outdent removes the indentation from each line.
func outdent(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t ")
	}
	return strings.Join(lines, "\n")
}
