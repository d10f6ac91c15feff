package storetest

import (
	"math/big"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// budget is how many attempts a rate allows in the window of an index, computed
// in exact fractions, on purpose in another way than bulk.Budget does it:
// floor((i+1)·rate·window) − floor(i·rate·window).
func budget(rate float64, window time.Duration, index int64) int64 {
	if rate <= 0 {
		return bulk.NoLimit
	}
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(rate, 'f', -1, 64))
	exact.Mul(exact, big.NewRat(int64(window), int64(time.Second)))
	until := func(windows int64) int64 {
		total := new(big.Rat).Mul(exact, new(big.Rat).SetInt64(windows))
		return new(big.Int).Div(total.Num(), total.Denom()).Int64()
	}
	return until(index+1) - until(index)
}

func windowIndex(window time.Duration) int64 { return time.Now().UnixNano() / int64(window) }
