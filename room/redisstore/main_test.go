//go:build redis

package redisstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

func TestMain(m *testing.M) {
	rapidtest.Checks(15, 100)
	goleak.VerifyTestMain(m)
}
