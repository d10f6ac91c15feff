package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestKafkaJS(t *testing.T) {
	t.Setenv("BROKER", startServer(t))
	t.Setenv("REPLICAS", fmt.Sprint(nodes()))
	runKafkaJS(t, "story.test.js")
}

// runKafkaJS runs the tests of a file in kafkajs/. The client is installed next to a copy of the file, by
// package-lock.json, so that nothing is left in the source.
func runKafkaJS(t *testing.T, tests string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", tests} {
		content, err := os.ReadFile(filepath.Join("kafkajs", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "npm", "ci", "--no-audit", "--no-fund")
	t.Log(run(t, dir, "node", "--test", "--test-reporter=spec", tests))
}
