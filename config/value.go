package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// The units of settings; see Setting.Unit.
const (
	unitDuration = "duration"
	unitSize     = "size"
	unitWhole    = "whole number"
	unitOrAuto   = "whole number or auto"
	unitNumber   = "number"
	unitBool     = "true or false"
	unitList     = "list"
	unitLists    = "lists by name"
)

// unitOf returns the unit of a field by its type. An int64 is a size in bytes.
func unitOf(field any) string {
	switch field.(type) {
	case *time.Duration:
		return unitDuration
	case *int64:
		return unitSize
	case *int:
		return unitWhole
	case *float64:
		return unitNumber
	case *bool:
		return unitBool
	case *Secrets, *List:
		return unitList
	case *map[string]Secrets:
		return unitLists
	default:
		return ""
	}
}

// parse sets the field from the text of the value.
func (s *Setting) parse(text string) error {
	var err error
	switch field := s.field.(type) {
	case *string:
		*field = text
	case *State:
		if *field = State(text); text == "" {
			*field = Embedded
		}
		return field.Validate() // its error does not show the text
	case *Secret:
		*field = Secret(text)
		return nil // validated in the end, by an error that does not show the text
	case *List:
		*field = ParseList(text)
	case *Secrets:
		*field = ParseSecrets(text)
	case *bool:
		*field, err = strconv.ParseBool(text)
		err = as(err, "true or false")
	case *slog.Level:
		*field, err = parseLevel(text)
	case *int64:
		if *field, err = parseSize(text); s.Zero != "" && *field == 0 && err == nil {
			*field = -1
		}
	case *int:
		err = s.parseWhole(field, text)
	case *float64:
		err = s.parseNumber(field, text)
	case *time.Duration:
		err = s.parseDuration(field, text)
	default:
		panic(fmt.Sprintf("config: no parser for %T", field))
	}
	if err == nil && s.check != nil {
		err = s.check(text)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

func (s *Setting) parseWhole(field *int, text string) (err error) {
	if *field, err = strconv.Atoi(text); err != nil {
		return errors.New("want a whole number")
	}
	if *field == 0 && s.Zero != "" {
		return nil
	}
	return positive(s, field)
}

func (s *Setting) parseNumber(field *float64, text string) (err error) {
	*field, err = strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(*field) || math.IsInf(*field, 0) {
		return errors.New("want a number")
	}
	return positive(s, field)
}

func (s *Setting) parseDuration(field *time.Duration, text string) (err error) {
	if *field, err = time.ParseDuration(text); err != nil {
		return errors.New("want a duration such as 500ms, 30s or 1h30m")
	}
	return positive(s, field)
}

// positive refuses a value below 0, and 0 where it has no meaning of its own. A 0 that
// has one becomes -1: the parts take 0 for their default.
func positive[T int | float64 | time.Duration](s *Setting, field *T) error {
	switch {
	case *field > 0:
		return nil
	case s.Zero == "":
		return errors.New("want more than 0")
	case *field < 0:
		return fmt.Errorf("want more than 0, or 0: %s", s.Zero)
	}
	*field = -1
	return nil
}

func parseLevel(text string) (level slog.Level, err error) {
	if err = oneOf("debug", "info", "warn", "error")(text); err == nil {
		err = level.UnmarshalText([]byte(text))
	}
	return level, err
}

func parseSize(text string) (int64, error) {
	size, err := humanize.ParseBytes(text)
	if err != nil || size > math.MaxInt64 {
		return 0, errors.New("want a size such as 256MiB or 1GiB")
	}
	return int64(size), nil
}

// as replaces an error by one that says what would be right; nil stays nil.
func as(err error, want string) error {
	if err == nil {
		return nil
	}
	return errors.New("want " + want)
}

// format returns the text that parse reads as the field's value.
func format(field any) string {
	switch field := field.(type) {
	case *string:
		return *field
	case *bool:
		return strconv.FormatBool(*field)
	case *slog.Level:
		return strings.ToLower(field.String())
	case *int64:
		return formatSize(max(*field, 0))
	case *int:
		return strconv.Itoa(*field)
	case *float64:
		return strconv.FormatFloat(max(*field, 0), 'f', -1, 64)
	case *time.Duration:
		return formatDuration(max(*field, 0))
	case *map[string]Secrets:
		if len(*field) == 0 {
			return "none"
		}
		return fmt.Sprintf("for %d targets, hidden", len(*field))
	case fmt.Stringer: // State, List, Secret and Secrets, which hide their secrets
		return field.String()
	}
	panic(fmt.Sprintf("config: no format for %T", field))
}

// formatDuration leaves out the zeros after the largest unit: 1m, not 1m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func formatSize(size int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if size >= unit.bytes && size%unit.bytes == 0 {
			return strconv.FormatInt(size/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(size, 10)
}

// maxList is how many values a list may have.
const maxList = 1_000

// List is a setting of several values: a list in the file, separated by commas in the
// environment and in flags.
type List []string

// ParseList reads values that are separated by commas. It does not check them.
func ParseList(text string) List {
	var list List
	for value := range strings.SplitSeq(text, ",") {
		if value = strings.TrimSpace(value); value != "" {
			list = append(list, value)
		}
	}
	return list
}

func (l List) String() string { return strings.Join(l, ",") }

// Prefixes returns the networks of a list that was checked.
func (l List) Prefixes() []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(l))
	for _, value := range l {
		if prefix, err := parsePrefix(value); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}
