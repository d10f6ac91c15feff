package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Bounds of reading the failed jobs.
const (
	letterPage   = 1000
	mostLetters  = 100_000
	mostMessages = 1000
)

// deadLetters returns the failed jobs.
type deadLetters interface {
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
}

// Failures counts the messages of the failed jobs.
type Failures struct {
	Messages map[string]int64
	// Read counts the dead letters that were read, at most mostLetters.
	Read int64
}

// ReadFailures reads the dead letters of actions.
func ReadFailures(ctx context.Context, r deadLetters, actions []bulk.Action, see func(*bulk.DeadLetter)) (*Failures, error) {
	result := &Failures{Messages: map[string]int64{}}
	for i := range actions {
		if actions[i].Failed == 0 {
			continue
		}
		err := eachLetter(ctx, r, actions[i].ID, func(letter *bulk.DeadLetter) bool {
			if see != nil {
				see(letter)
			}
			result.count(letter.Error)
			return result.Read < mostLetters
		})
		if err != nil {
			return nil, err
		}
	}
	return result, nil
}

func (f *Failures) count(message string) {
	f.Read++
	message = term.Printable(message)
	if _, known := f.Messages[message]; !known && len(f.Messages) == mostMessages {
		message = "(other messages)"
	}
	f.Messages[message]++
}

func eachLetter(ctx context.Context, r deadLetters, id string, see func(*bulk.DeadLetter) bool) error {
	from := int64(0)
	for {
		letters, err := r.DeadLetters(ctx, id, from, letterPage)
		if err != nil {
			return fmt.Errorf("failed jobs of action %s: %w", id, err)
		}
		for i := range letters {
			if !see(&letters[i]) {
				return nil
			}
			from = letters[i].Index + 1
		}
		if len(letters) == 0 {
			return nil
		}
	}
}

// listedMessages is how many messages are shown.
const listedMessages = 5

// Write lists the most frequent messages of failed jobs.
func (f *Failures) Write(w io.Writer, columns int) {
	if f.Read == 0 {
		return
	}
	of := ""
	if f.Read == mostLetters {
		of = fmt.Sprintf(" (of the first %s)", humanize.Comma(mostLetters))
	}
	fmt.Fprintf(w, "\nfailed%s because of\n", of)
	for i, message := range f.top() {
		if i == listedMessages {
			fmt.Fprintf(w, "  … and %s\n", term.Plural(int64(len(f.Messages)-i), "other message", "other messages"))
			return
		}
		const indent = 11
		text := text.WrapSoft(term.Clip(cmp.Or(message, "(no message)"), 2*(columns-indent)), columns-indent)
		fmt.Fprintf(w, "%s  %s\n", term.Right(humanize.Comma(f.Messages[message]), indent-2),
			strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent)))
	}
}

// top returns the messages, most frequent first.
func (f *Failures) top() []string {
	return slices.SortedFunc(maps.Keys(f.Messages), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.Messages[b], f.Messages[a]), cmp.Compare(a, b))
	})
}
