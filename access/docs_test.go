package access_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
)

var update = flag.Bool("update", false, "write the table of docs/access.md again")

// The table of roles in docs/access.md is that of the code.
func TestRolesInTheDocs(t *testing.T) {
	const path, head = "../docs/access.md", "| right | allows |"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	begin := strings.Index(doc, head)
	if begin < 0 {
		t.Fatalf("%s has no table that begins with %s", path, head)
	}
	end := begin + strings.Index(doc[begin:]+"\n\n", "\n\n")
	want := doc[:begin] + rolesTable(head) + doc[end:]
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if doc != want {
		t.Errorf("the table of %s is not that of access/role.go: run make generate", path)
	}
}

func rolesTable(head string) string {
	var table strings.Builder
	table.WriteString(head)
	for _, role := range access.Roles() {
		fmt.Fprintf(&table, " %s |", role)
	}
	table.WriteString("\n|---|---|" + strings.Repeat("---|", len(access.Roles())))
	for _, right := range access.Rights() {
		fmt.Fprintf(&table, "\n| %s | %s |", right, right.Allows())
		for _, role := range access.Roles() {
			has := ""
			if slices.Contains(access.RolesWith(right), role) {
				has = "yes"
			}
			fmt.Fprintf(&table, " %s |", has)
		}
	}
	return table.String()
}
