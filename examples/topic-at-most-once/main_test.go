package main

import (
	"strconv"
	"testing"

	"github.com/sluice-project/sluice/examples/kill"
)

func TestMain(m *testing.M) { kill.Main(m, main) }

// The consumer is killed repeatedly: it prints no reading twice.
func TestKilled(t *testing.T) {
	broker := kill.Broker(t)
	kill.New(t, "-brokers", broker, "produce", "10000").Run()
	consumer := kill.New(t, "-brokers", broker, "-work", "2ms", "consume")
	for range kill.Kills() {
		consumer.Start()
		consumer.Work()
		consumer.Kill()
	}
	last, lost := 0, 0
	for _, line := range consumer.Lines() {
		number, err := strconv.Atoi(line)
		if err != nil || number <= last {
			t.Fatalf("printed %q after %d", line, last)
		}
		lost += number - last - 1
		last = number
	}
	t.Logf("%d readings printed, %d lost", len(consumer.Lines()), lost)
}
