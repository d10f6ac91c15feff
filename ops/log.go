package ops

import (
	"fmt"
	"io"
	"log/slog"
)

// The formats of logs.
const (
	LogText = "text"
	LogJSON = "json"
)

// NewLogger returns a logger that writes one line for each record at or above
// level to w, as LogText or LogJSON. Another format is an error.
func NewLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case LogText:
		return slog.New(slog.NewTextHandler(w, options)), nil
	case LogJSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: want %s or %s", format, LogText, LogJSON)
}
