package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-project/sluice/examples/kill"
)

func TestMain(m *testing.M) { kill.Main(m, main) }

// The producer is killed and restarted, and the consumer is killed repeatedly: each order is
// printed.
func TestKilled(t *testing.T) {
	const count = 2000
	broker := kill.Broker(t)
	producer := kill.New(t, "-brokers", broker, "produce", strconv.Itoa(count))
	producer.Start()
	<-time.After(rand.N(200 * time.Millisecond))
	producer.Kill()
	producer.Run()
	consumer := kill.New(t, "-brokers", broker, "-work", "1ms", "consume")
	for range kill.Kills() {
		consumer.Start()
		consumer.Work()
		consumer.Kill()
	}
	consumer.Start()
	consumer.Until(func(lines []string) bool { return slices.Contains(lines, strconv.Itoa(count)) })
	lines := consumer.Lines()
	for n := 1; n <= count; n++ {
		if !slices.Contains(lines, strconv.Itoa(n)) {
			t.Errorf("order %d was not printed", n)
		}
	}
	t.Logf("%d orders printed, %d of them again", count, len(lines)-count)
}
