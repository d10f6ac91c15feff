package bulk

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/cli/clitest"
)

// Jobs are enqueued on the real engine and store, through the real API and client. Bubbles
// begin at 2000-01-01T00:00:00Z.
func TestEnqueueGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := newService(t)
		defer end()
		var all strings.Builder
		run := func(stdin, line string, args ...string) {
			fmt.Fprintf(&all, "$ sluice bulk %s", line)
			for _, arg := range args {
				fmt.Fprintf(&all, " '%s'", arg)
			}
			all.WriteString("\n")
			r := s.on(t.Context(), stdin, append(strings.Fields(line), args...)...)
			all.WriteString(r.Stderr + r.Stdout)
			if r.Failure != nil {
				fmt.Fprintf(&all, "sluice: %v (exit code %d)\n", r.Failure, r.Code())
			}
			time.Sleep(time.Second)
		}
		run("", "enqueue --tenant acme --type echo", `{"order":17}`)
		run("", "enqueue --tenant acme --type echo --json", `"text"`)
		run(ordersNDJSON(100), "enqueue - --tenant acme --type echo")
		run("1\n2\n", "enqueue - --tenant acme --type echo --json")
		run("1\n2\n", "enqueue - --tenant acme --type echo --key customer-7")
		run("", "list")
		run("", "enqueue --tenant acme --type echo --unique order-17 --unique-for 24h", `{"order":17}`)
		run("", "enqueue --tenant acme --type echo --unique order-17 --unique-for 24h", `{"order":17}`)
		run("", "enqueue --tenant acme --type echo --unique a --run-at 2000-01-02T00:00:00Z --json", `1`)
		run("1\n{2\n", "enqueue - --tenant acme --type echo")
		run("", "enqueue --tenant acme --type echo", `{order:17}`)
		run("", "enqueue --tenant acme", `1`)
		run("", "enqueue --type echo", `1`)
		run("", "enqueue --tenant acme --type echo --unique-for 1h", `1`)
		run("", "enqueue - --tenant acme --type echo --unique a")
		run("", "enqueue --tenant acme --type echo --run-at tomorrow", `1`)
		run("", "enqueue --tenant acme --type echo --run-at 2100-01-01T00:00:00Z", `1`)
		time.Sleep(61 * time.Minute)
		run("", "list --status COMPLETED")
		clitest.Golden(t, "enqueue", all.String())
	})
}
