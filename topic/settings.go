package topic

import "time"

// Settings are those of one topic, parsed and with the broker's defaults.
type Settings struct {
	// Retention (retention.ms) and RetentionBytes (retention.bytes) say how
	// much is kept; negative: no limit.
	Retention      time.Duration
	RetentionBytes int64
	// MaxMessageBytes (max.message.bytes) is the most bytes of one batch.
	MaxMessageBytes int32
	// LogAppendTime (message.timestamp.type) makes the time of the append the
	// records' timestamp.
	LogAppendTime bool
	// ViewOf and ViewWhere (sluice.view.of, sluice.view.where) make it a view.
	ViewOf, ViewWhere string
	// Delays (sluice.delay.enable) lets records be delayed; Delay
	// (sluice.delay) is how long those wait that do not say.
	Delays bool
	Delay  time.Duration
}

// ParseSettings returns the settings with those values, and the broker's
// defaults for the rest. The error is an ErrInvalidSetting.
func ParseSettings(own map[string]string, broker Config) (Settings, error) { panic("contract") }
