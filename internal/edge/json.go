package edge

import (
	"fmt"
	"maps"

	"github.com/danielgtaylor/huma/v2"
)

// The framework decodes a body into a tree, which takes some 50 times the bytes of "[1,1,…",
// makes an error of up to 2 KiB for each wrong value in it, and decodes the body again into
// what is declared, whether it has errors or not.
const (
	// maxUpper is the most values in the body's object and in the lists that it has: no
	// declared list is longer than 10,000.
	maxUpper = 11_000
	// maxValues is the most values in all: most are in what callers choose, such as results.
	maxValues = 500_000
	// maxChecked is how many values are checked: the uppermost, as what is declared is above
	// what callers choose.
	maxChecked = 11_000
	// maxErrors and maxErrorText bound the errors of an answer, and the bytes of each.
	maxErrors    = 20
	maxErrorText = 300
)

// formats are those of the framework, with bounds.
func formats() map[string]huma.Format {
	all := maps.Clone(huma.DefaultFormats)
	for name, format := range all {
		decode := format.Unmarshal
		format.Unmarshal = func(data []byte, v any) error {
			if err := checkValues(data); err != nil {
				return err
			}
			err := decode(data, v)
			if tree, ok := v.(*any); ok && err == nil {
				*tree = uppermost(*tree, maxChecked)
			}
			return err
		}
		all[name] = format
	}
	return all
}

// checkValues counts the values of a JSON text before it is decoded. Of a text that is not
// valid it may count any number.
func checkValues(text []byte) error {
	all, upper, depth, quoted := 1, 1, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == ']' || c == '}':
			depth--
		case c == ',' || c == '[' || c == '{':
			if c != ',' {
				depth++
			}
			all++
			if depth <= 2 {
				upper++
			}
		}
	}
	if upper > maxUpper || all > maxValues {
		return fmt.Errorf("the body has too many values: want at most %d in its object and the lists of that, and %d in all", maxUpper, maxValues)
	}
	return nil
}

// uppermost returns a tree with at most so many values besides the root: those of a level
// before those below.
func uppermost(root any, left int) any {
	cut := func(v any) any {
		if list, ok := v.([]any); ok {
			v = list[:min(left, len(list))]
			left -= min(left, len(list))
		}
		return v
	}
	root = cut(root)
	for level := []any{root}; len(level) > 0; {
		var below []any
		for _, of := range level {
			switch of := of.(type) {
			case []any:
				for i := range of {
					of[i] = cut(of[i])
					below = append(below, of[i])
				}
			case map[string]any:
				for name, v := range of {
					if left == 0 {
						delete(of, name)
						continue
					}
					left--
					of[name] = cut(v)
					below = append(below, of[name])
				}
			}
		}
		level = below
	}
	return root
}

// brief returns the beginning of a text that may quote a request.
func brief(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return text[:maxErrorText] + "…"
}
