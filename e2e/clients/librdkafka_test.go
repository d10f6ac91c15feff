package clients

import (
	"fmt"
	"path/filepath"
	"testing"
)

// librdkafka tells its story in librdkafka/, in C.
func TestLibrdkafka(t *testing.T) {
	t.Setenv("BROKER", startServer(t))
	t.Setenv("REPLICAS", fmt.Sprint(nodes()))
	story := filepath.Join(t.TempDir(), "story")
	run(t, "librdkafka", "gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o", story, "story.c", "client.c", "admin.c", "-lrdkafka")
	for _, part := range []string{"records", "group", "seek", "view", "topics", "groups", "delays"} {
		t.Run(part, func(t *testing.T) { run(t, "", story, part) })
	}
}
