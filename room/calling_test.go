package room_test

import (
	"testing"

	"github.com/sluice-project/sluice/room/storetest"
)

func TestRulesOfCalling(t *testing.T) { storetest.CheckRules(t) }
