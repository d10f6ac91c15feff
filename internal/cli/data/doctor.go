package data

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Results of a check.
const (
	sound   = "ok"
	notice  = "warning"
	failing = "error"
)

// finding is the result of a check, or one of several.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	// Advice says what to do; empty if nothing is.
	Advice string `json:"advice,omitempty"`
}

// Doctor returns the command sluice doctor.
func Doctor() *cobra.Command {
	var server remote.Flags
	var topics brokers.Flags
	var data string
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with a data directory, or with a running server",
		Long: `With --data, read the data directory of a stopped server and find each file that is
damaged, missing or of a newer release; and look at the disk, at how long its fsyncs
take, at the limit of open files and at the clock. Nothing is changed; one file of 4 KiB
is written and removed to time the disk. All data is read, which takes its time.

Without, ask a running server how it is, whether its partitions have leaders, how full
its disks are, and whether the addresses that it gives to Kafka clients can be reached
from here.

The exit code is 0 if all is well, also with warnings, and 1 if there is an error.`,
		Example: `  sluice doctor --data sluice-data
  sluice doctor --server http://127.0.0.1:8080 --brokers 127.0.0.1:9092
  sluice doctor --data sluice-data --json | jq 'select(.result == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			e := &examination{Output: term.OutputOf(command, server.JSON)}
			if data != "" {
				e.examineFiles(command.Context(), data)
			} else if err := e.examineServer(command, &server, &topics); err != nil {
				return err
			}
			return e.report(command.Context())
		},
	}
	command.Flags().StringVar(&data, "data", "", "data `directory` of a stopped server")
	server.Add(command)
	topics.AddBrokers(command)
	return command
}

// examination is one run of the command.
type examination struct {
	term.Output
	findings []finding
}

// find adds a finding. A nil error is a good one, with the detail.
func (e *examination) find(check string, err error, advice, detail string, args ...any) {
	if err != nil {
		e.findings = append(e.findings, finding{check, failing, exit.OneLine(err), advice})
		return
	}
	e.findings = append(e.findings, finding{Check: check, Result: sound, Detail: fmt.Sprintf(detail, args...)})
}

// warnIf adds a finding that is a warning if the condition holds.
func (e *examination) warnIf(condition bool, check, advice, detail string, args ...any) {
	f := finding{Check: check, Result: sound, Detail: fmt.Sprintf(detail, args...)}
	if condition {
		f.Result, f.Advice = notice, advice
	}
	e.findings = append(e.findings, f)
}

func (e *examination) report(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return exit.Interrupted(err)
	}
	type column = term.Column[finding]
	err := term.List(&e.Output, e.findings, "",
		column{Header: "check", Words: true, Cell: func(f *finding) string { return f.Check }},
		column{Header: "result", Words: true, Cell: func(f *finding) string { return f.Result }},
		column{Header: "detail", Words: true, Cell: func(f *finding) string { return term.Printable(f.Detail) }},
	)
	if err != nil {
		return err
	}
	errors := 0
	for _, f := range e.findings {
		if f.Result == failing {
			errors++
		}
		if f.Result != sound && !e.JSON {
			e.explain(f)
		}
	}
	if errors > 0 {
		return fmt.Errorf("%s found", term.Counted(int64(errors), "error"))
	}
	return nil
}

// explain prints a finding in full, since a table cuts what is long.
func (e *examination) explain(f finding) {
	fmt.Fprintln(e.Out)
	e.Facts([]term.Fact{{f.Check, term.Printable(f.Detail)}, {"advice", f.Advice}}, true)
}

// Bounds of what a server is asked.
const (
	reachTime = 3 * time.Second
	clockSkew = 2 * time.Second
)
