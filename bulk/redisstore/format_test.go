package redisstore

import (
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestTheFormatIsDescribed checks that the page on the format names exactly the keys that
// scripts and Go write, and every field of the JSON objects.
func TestTheFormatIsDescribed(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/formats/bulk-redis.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	used := keysOfSources(t)
	if len(used) < 40 {
		t.Fatalf("only %d names of keys are found: %v", len(used), used)
	}
	for name, where := range used {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the key %q of %s is not described", name, where)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z]+:?)`[^|]*\\| (?:string|list|hash|sorted set) \\|")
	described := rows.FindAllStringSubmatch(page, -1)
	if len(described) < 35 {
		t.Errorf("only %d keys are described", len(described))
	}
	for _, row := range described {
		if used[row[1]] == "" {
			t.Errorf("the key %q is described, and used nowhere", row[1])
		}
	}
	for _, thing := range []any{record{}, shardState{}, kindState{}, tenantState{}, lineState{}, targetState{}, limiterState{}} {
		of := reflect.TypeOf(thing)
		for i := range of.NumField() {
			if name := of.Field(i).Tag.Get("json"); name != "" && !strings.Contains(page, "`"+name+"`") {
				t.Errorf("the field %q of %s is not described", name, of.Name())
			}
		}
	}
}

// keysOfSources returns the names of keys after the prefix, up to the variable part, and a
// file that uses each.
func keysOfSources(t *testing.T) map[string]string {
	t.Helper()
	used := map[string]string{}
	inLua := regexp.MustCompile(`(?:\b[PH]|KEYS\[1\]) \.\. '([a-z]+:?)'`)
	inThing := regexp.MustCompile(`\b(?:get|put|touch|leave|actionOf)\('([a-z]+:?)'`)
	inGo := regexp.MustCompile(`(?:hub|base|shards\[\w+\]) ?\+ ?"([a-z]+:?)"`)
	scan := func(folder fs.FS, pattern string, expressions ...*regexp.Regexp) {
		files, err := fs.Glob(folder, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := fs.ReadFile(folder, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, expression := range expressions {
				for _, match := range expression.FindAllStringSubmatch(string(text), -1) {
					used[match[1]] = file
				}
			}
		}
	}
	scan(sources, "lua/*.lua", inLua, inThing)
	scan(os.DirFS("."), "*.go", inGo)
	used["allot:"], used["m:"] = "lua/allot.lua", "lua/action.lua" // assembled in other ways
	return used
}
