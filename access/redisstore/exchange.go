package redisstore

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/rediskv"
)

var tradeScript = rediskv.NewScript(sources, rediskv.EvenFull, "trade")

var _ access.Exchange = (*Store)(nil)

// Trade implements access.Exchange by one call of a script.
func (s *Store) Trade(ctx context.Context, tell []byte) (others [][]byte, err error) {
	within := strconv.FormatInt(access.Told.Milliseconds(), 10)
	return rediskv.Exec(ctx, s.db, tradeScript, []string{s.key + ":told"}, []string{s.instance, rueidis.BinaryString(tell), within}, func(r rueidis.RedisResult) ([][]byte, error) {
		answer, err := r.ToArray()
		for _, message := range answer {
			text, err := message.AsBytes()
			if err != nil {
				return nil, err
			}
			others = append(others, text)
		}
		return others, err
	})
}
