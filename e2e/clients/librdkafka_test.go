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
	program := compiled(t, "admin.c")
	for _, part := range []string{"topics", "groups"} {
		t.Run(part, func(t *testing.T) { run(t, "", program, part) })
	}
	t.Run("transactions", func(t *testing.T) { run(t, "", compiled(t, "transactions.c")) })
}

// compiled compiles a program below librdkafka/, and returns its path.
func compiled(t *testing.T, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	run(t, "librdkafka", "gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o", program, "client.c", source, "-lrdkafka")
	return program
}
