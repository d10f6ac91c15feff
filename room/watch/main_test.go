package watch

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(benchAddress); address != "" {
		openStreams(address)
		return
	}
	goleak.VerifyTestMain(m)
}
