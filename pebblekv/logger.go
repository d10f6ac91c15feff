package pebblekv

import (
	"fmt"
	"log/slog"
)

// Logger hands Pebble's messages to slog. Pebble calls Fatalf when it
// cannot go on; Apply turns the panic into an error.
type Logger struct{ Log *slog.Logger }

// Infof drops what Pebble says of its daily work.
func (l Logger) Infof(string, ...any) {}

// Errorf logs an error.
func (l Logger) Errorf(format string, args ...any) {
	l.Log.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf logs an error and panics.
func (l Logger) Fatalf(format string, args ...any) {
	l.Log.Error("pebble: " + fmt.Sprintf(format, args...))
	panic(fmt.Sprintf(format, args...))
}
