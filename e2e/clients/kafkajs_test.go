package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// kafkajs runs its tests in kafkajs/story.test.js. It is installed next to a copy of that file, by
// package-lock.json, so that nothing is left in the source.
func TestKafkaJS(t *testing.T) {
	addr := startServer(t)
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "story.test.js"} {
		content, err := os.ReadFile(filepath.Join("kafkajs", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "npm", "ci", "--no-audit", "--no-fund")
	t.Setenv("BROKER", addr)
	t.Setenv("REPLICAS", fmt.Sprint(nodes()))
	t.Log(run(t, dir, "node", "--test", "--test-reporter=spec", "story.test.js"))
}
