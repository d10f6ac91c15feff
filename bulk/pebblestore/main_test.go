package pebblestore

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

func TestMain(m *testing.M) {
	rapidtest.Checks(rapidtest.WithRace(100), 100)
	m.Run()
}
