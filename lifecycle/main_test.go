package lifecycle_test

import (
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
