package watch

import (
	"os"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(benchAddress); address != "" {
		openStreams(address)
		return
	}
	leaks.Main(m)
}
