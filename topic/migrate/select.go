package migrate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/topic"
)

// Select returns an inventory of the topics that match patterns; see Options.Topics. A
// view without its source is an error, as is a pattern that matches nothing.
func Select(inventory Inventory, patterns []string) (Inventory, error) {
	used := make([]bool, len(patterns))
	onlyNot := !slices.ContainsFunc(patterns, func(pattern string) bool { return !strings.HasPrefix(pattern, "!") })
	topics := []InventoryTopic{}
	chosen := map[string]bool{}
	for _, t := range inventory.Topics {
		keep := onlyNot
		for i, pattern := range patterns {
			pattern, not := strings.CutPrefix(pattern, "!")
			matches, err := path.Match(pattern, t.Name)
			if err != nil {
				return inventory, fmt.Errorf("topics %q: %w", pattern, err)
			}
			if matches {
				keep, used[i] = !not, true
			}
		}
		if keep {
			topics, chosen[t.Name] = append(topics, t), true
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return inventory, fmt.Errorf("topics %q: %w", patterns[i], topic.ErrNoTopic)
	}
	for _, t := range topics {
		if t.Source != "" && !chosen[t.Source] {
			return inventory, fmt.Errorf("topic %s is a view of %s: move both, or leave it out", t.Name, t.Source)
		}
	}
	inventory.Topics = topics
	return inventory, nil
}
