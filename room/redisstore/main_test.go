//go:build redis

package redisstore_test

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	rapidtest.Checks(rapidtest.WithRace(15), 100)
	redistest.VerifyTestMain(m)
}
