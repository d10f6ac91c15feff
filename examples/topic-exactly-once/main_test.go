package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sluice-project/sluice/examples/kill"
)

func TestMain(m *testing.M) { kill.Main(m, main) }

// Producer and consumer are killed repeatedly: each payment is added up once.
func TestKilled(t *testing.T) {
	count := 500 * kill.Kills()
	broker := kill.Broker(t)
	state := filepath.Join(t.TempDir(), "payments.json")
	producer := kill.New(t, "-brokers", broker, "-work", "2ms", "produce", strconv.Itoa(count))
	consumer := kill.New(t, "-brokers", broker, "-work", "1ms", "-file", state, "consume")
	for range kill.Kills() {
		producer.Start()
		consumer.Start()
		consumer.Work()
		producer.Kill()
		consumer.Kill()
	}
	producer.Run()
	consumer.Start()
	consumer.Until(func(lines []string) bool {
		last, sum := 0, 0
		_, _ = fmt.Sscanf(lines[len(lines)-1], "%d payments, sum %d", &last, &sum)
		return last == count
	})
	got, err := load(state)
	if want := count * (count + 1) / 2; err != nil || got.Sum != want || got.Last != count {
		t.Errorf("%+v, %v: want %d payments, sum %d", got, err, count, want)
	}
	t.Logf("%d records for %d payments", got.Offset, count)
}
