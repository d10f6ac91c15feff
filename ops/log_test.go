package ops_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/ops"
)

func TestLoggerWritesItsFormatFromItsLevelOn(t *testing.T) {
	tests := []struct {
		format string
		level  slog.Level
		want   int
	}{
		{ops.LogText, slog.LevelDebug, 3},
		{ops.LogText, slog.LevelInfo, 2},
		{ops.LogJSON, slog.LevelInfo, 2},
		{ops.LogJSON, slog.LevelError, 1},
	}
	for _, test := range tests {
		var out bytes.Buffer
		logger, err := ops.NewLogger(&out, test.format, test.level)
		if err != nil {
			t.Fatal(err)
		}
		logger.Debug("below")
		logger.Info("hello", "tenant", "acme")
		logger.Error("above")
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != test.want {
			t.Errorf("%s at %s wrote %d lines, want %d:\n%s", test.format, test.level, len(lines), test.want, &out)
		}
		if isJSON := json.Valid([]byte(lines[0])); isJSON != (test.format == ops.LogJSON) {
			t.Errorf("%s wrote %s", test.format, lines[0])
		}
	}
}

func TestLoggerRefusesAnUnknownFormat(t *testing.T) {
	_, err := ops.NewLogger(&bytes.Buffer{}, "xml", slog.LevelInfo)
	if err == nil || err.Error() != `log format "xml": want text or json` {
		t.Fatalf("error %v, want it to name the format and those there are", err)
	}
}
