package bench

import (
	"context"
	"fmt"
	"time"
)

// Settings are the settings of sluice that trade durability and latency for throughput: sync with
// linger, the defaults first.
func Settings() []SluiceSettings {
	var all []SluiceSettings
	for _, sync := range []time.Duration{0, time.Second} {
		for _, linger := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
			all = append(all, SluiceSettings{sync, linger})
		}
	}
	return all
}

// String returns the settings as they are written in the configuration.
func (s SluiceSettings) String() string {
	sync := "always"
	if s.Sync > 0 {
		sync = s.Sync.String()
	}
	return fmt.Sprintf("sync %s, linger %s", sync, s.Linger)
}

// Sluice returns the broker with the settings.
func (e *Environment) Sluice(settings SluiceSettings) Broker {
	return e.sluice(settings.String(), settings, plainProducer)
}

// SettingsProducers is how many concurrent producers BySettings has.
const SettingsProducers = 50

// SettingsEffect is the measurement of settings.
type SettingsEffect struct {
	// Peak is one busy producer, in records per second.
	Peak float64
	// Alone is one producer that sends one record at a time; Many are
	// SettingsProducers of them.
	Alone, Many Latency
}

// BySettings measures sluice with settings, each measure for d.
func (e *Environment) BySettings(ctx context.Context, settings SluiceSettings, d time.Duration) (effect SettingsEffect, err error) {
	broker := e.Sluice(settings)
	produced, err := Produce(ctx, broker, Stream{Bytes: PayloadBytes, Partitions: 1, For: d}, false)
	if err != nil {
		return effect, err
	}
	effect.Peak = produced.Sent.PerSecond()
	if effect.Alone, err = OneAtATime(ctx, broker, 1, d); err != nil {
		return effect, err
	}
	effect.Many, err = OneAtATime(ctx, broker, SettingsProducers, d)
	return effect, err
}
