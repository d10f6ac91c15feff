package room_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// The seed of a lottery is public after the draw. A room that nobody came to may have
// another lottery, by another seed.
func TestASecondLotteryHasAnotherSeed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		lottery := teller(1)
		lottery.Method, lottery.OpensAt = room.Lottery, time.Now().Add(time.Minute)
		first := r.put("shop", lottery)
		time.Sleep(2 * time.Minute)
		r.put("shop", teller(1))
		lottery.OpensAt = time.Now().Add(time.Hour)
		again := r.put("shop", lottery)
		if bytes.Equal(first.Room.Seed, again.Room.Seed) {
			t.Error("the second lottery is drawn by a seed that everybody can know")
		}
		lottery.Capacity = 2
		if same := r.put("shop", lottery); !bytes.Equal(again.Room.Seed, same.Room.Seed) {
			t.Error("a lottery's seed was changed")
		}
	})
}
