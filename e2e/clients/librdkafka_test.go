package clients

import (
	"fmt"
	"path/filepath"
	"testing"
)

// librdkafka administers topics and groups, in C. kcat uses the same library and tests the rest in
// e2e.
func TestLibrdkafka(t *testing.T) {
	t.Setenv("BROKER", startServer(t))
	t.Setenv("REPLICAS", fmt.Sprint(nodes()))
	program := filepath.Join(t.TempDir(), "admin")
	run(t, "librdkafka", "gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o", program, "client.c", "admin.c", "-lrdkafka")
	for _, part := range []string{"topics", "groups"} {
		t.Run(part, func(t *testing.T) { run(t, "", program, part) })
	}
	t.Run("transactions", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "transactions")
		run(t, "librdkafka", "gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o", program, "client.c", "transactions.c", "-lrdkafka")
		run(t, "", program)
	})
}
