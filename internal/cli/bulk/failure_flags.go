package bulk

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// failureFlags select failed jobs by why and when they failed.
type failureFlags struct {
	filter       wire.FailureFilter
	since, until string
}

// failureHelp says what the flags take.
const failureHelp = `

--cause takes a status of HTTP (503), a class of them (5xx), or timeout, which is any error that
says so. --since and --until take a time such as 2026-11-28T08:00:00Z, a day such as 2026-11-28,
today or yesterday (from 00:00 UTC on), or a duration such as 90m for that long ago.`

func (f *failureFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.filter.Cause, "cause", "", "the failures with this `cause`: 503, 5xx, timeout")
	flags.StringVar(&f.filter.Error, "error", "", "those whose error contains this `text`, in upper or lower case")
	flags.StringVar(&f.since, "since", "", "those at this `time` or later")
	flags.StringVar(&f.until, "until", "", "those before this `time`")
}

// given reports whether any of the flags was given.
func (f *failureFlags) given() bool { return f.filter.Cause+f.filter.Error+f.since+f.until != "" }

// read returns what the flags select.
func (f *failureFlags) read(now time.Time) (filter wire.FailureFilter, err error) {
	filter = f.filter
	if filter.Since, err = momentOf("--since", f.since, now); err != nil {
		return filter, err
	}
	filter.Until, err = momentOf("--until", f.until, now)
	return filter, err
}

// momentOf reads the time of a flag; zero if it is empty.
func momentOf(flag, text string, now time.Time) (time.Time, error) {
	today := now.UTC().Truncate(24 * time.Hour)
	switch text {
	case "":
		return time.Time{}, nil
	case "today":
		return today, nil
	case "yesterday":
		return today.AddDate(0, 0, -1), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, exit.Usage("%s: %q: want a time such as 2026-11-28T08:00:00Z, a day such as 2026-11-28, today, yesterday, or a duration such as 90m for that long ago", flag, text)
}
