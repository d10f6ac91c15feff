package web

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// htmx is vendored: dist/htmx.min.js of htmx.org 2.0.11 from npm. NOTICES name the version.
const htmxDigest = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"

// maxScript is how many bytes of JavaScript a browser loads.
const maxScript = 60_000

func TestScriptsArePinnedAndSmall(t *testing.T) {
	total := 0
	for _, name := range []string{"static/htmx.min.js", "static/ui.js"} {
		content, err := static.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(content)
		sum := sha256.Sum256(content)
		if name == "static/htmx.min.js" && hex.EncodeToString(sum[:]) != htmxDigest {
			t.Errorf("%s has the digest %x, not that of the release", name, sum)
		}
	}
	if total > maxScript {
		t.Errorf("scripts have %d bytes, want at most %d", total, maxScript)
	}
}

var (
	elsewhere = regexp.MustCompile(`(?:src|href|action|url)\s*[=(]\s*["']?(?:https?:)?//`)
	inline    = regexp.MustCompile(`<script>|<style|\sstyle=|\son[a-z]+=|javascript:`)
)

// The policy of the pages would stop what these find; so nobody sees it fail in a browser only.
func TestPagesLoadNothingFromElsewhereAndHaveNoInlineScript(t *testing.T) {
	for _, files := range []fs.FS{static, pages} {
		err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.Contains(path, "htmx.") {
				return err
			}
			content, err := fs.ReadFile(files, path)
			for _, wrong := range []*regexp.Regexp{elsewhere, inline} {
				if found := wrong.Find(content); found != nil {
					t.Errorf("%s has %q", path, found)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
