package exit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/config"
)

type codedError struct{ error }

func (codedError) ExitCode() int { return 130 }

func TestExitCodeOfErrors(t *testing.T) {
	for want, err := range map[int]error{
		1:   errors.New("failed"),
		2:   fmt.Errorf("load: %w", &config.Error{Key: "http", Source: "default", Why: "wrong"}),
		130: fmt.Errorf("run: %w", codedError{errors.New("interrupted")}),
	} {
		if code := Code(err); code != want {
			t.Errorf("exitCode(%v) = %d, want %d", err, code, want)
		}
	}
	if got := OneLine(errors.Join(errors.New("a"), errors.New("b"))); got != "a; b" {
		t.Errorf("two errors as one line: %q, want %q", got, "a; b")
	}
}

func TestInterruptedCommandSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	code := Explain(ctx, fmt.Errorf("upload: %w", context.Canceled), &stderr)
	if want := "sluice: interrupted: upload: context canceled\n"; code != 1 || stderr.String() != want {
		t.Errorf("code %d, %q; want 1, %q", code, &stderr, want)
	}
}
