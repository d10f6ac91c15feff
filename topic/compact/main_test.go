package compact_test

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

func TestMain(m *testing.M) {
	rapidtest.Checks(200, 2000)
	leaks.Main(m)
}
