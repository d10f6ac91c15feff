package clients

import (
	"fmt"
	"testing"
)

// Each client of Python tells its story in a script below python/.
func TestPython(t *testing.T) {
	for _, script := range []string{"kafka_python.py", "confluent.py"} {
		t.Run(script, func(t *testing.T) {
			t.Setenv("BROKER", startServer(t))
			t.Setenv("REPLICAS", fmt.Sprint(nodes()))
			t.Log(run(t, "python", "/usr/bin/python3", script))
		})
	}
}
