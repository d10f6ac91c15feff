package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-project/sluice/bulk"
)

// mergeable has the aggregates that can be merged without loss over several actions. An average, a
// percentile or a list of the most frequent errors cannot be derived from those of the parts, and
// is reported for each action.
var mergeable = map[string]func(a, b *apd.Decimal) (*apd.Decimal, error){
	"count": addDecimals,
	"sum":   addDecimals,
	"min":   func(a, b *apd.Decimal) (*apd.Decimal, error) { return pick(a, b, b.Cmp(a) < 0), nil },
	"max":   func(a, b *apd.Decimal) (*apd.Decimal, error) { return pick(a, b, b.Cmp(a) > 0), nil },
}

// MergeableNames lists them for help texts.
const MergeableNames = "count, sum, min and max"

func pick(a, b *apd.Decimal, second bool) *apd.Decimal {
	if second {
		return b
	}
	return a
}

// addDecimals adds without rounding.
func addDecimals(a, b *apd.Decimal) (*apd.Decimal, error) {
	sum := new(apd.Decimal)
	_, err := apd.BaseContext.Add(sum, a, b)
	return sum, err
}

// Aggregates are the results of a run, by requested name.
type Aggregates struct {
	// Merged are the aggregates of the run as a whole.
	Merged map[string]json.RawMessage
	// PerAction are the aggregates that cannot be merged: by name, then by tenant.
	PerAction map[string]map[string]json.RawMessage
}

// Merge merges the aggregates of the run's actions.
func (r *Run) Merge(names []string, actions []bulk.Action) (err error) {
	r.Merged, err = mergeAggregates(names, actions)
	return err
}

// mergeAggregates merges the results of actions.
func mergeAggregates(names []string, actions []bulk.Action) (*Aggregates, error) {
	result := &Aggregates{Merged: map[string]json.RawMessage{}}
	for _, name := range names {
		kind, _, _ := strings.Cut(name, ":")
		merge, ok := mergeable[kind]
		if !ok {
			result.keep(name, actions)
			continue
		}
		value, err := mergeOne(name, merge, actions)
		if err != nil {
			return nil, err
		}
		result.Merged[name] = value
	}
	return result, nil
}

func (a *Aggregates) keep(name string, actions []bulk.Action) {
	if a.PerAction == nil {
		a.PerAction = map[string]map[string]json.RawMessage{}
	}
	values := map[string]json.RawMessage{}
	for i := range actions {
		if value, ok := actions[i].Result[name]; ok {
			values[actions[i].Tenant] = value
		}
	}
	a.PerAction[name] = values
}

// mergeOne merges one aggregate. The result is a string if the parts are strings, a number if they
// are numbers, and null if there is no part.
func mergeOne(name string, merge func(a, b *apd.Decimal) (*apd.Decimal, error), actions []bulk.Action) (json.RawMessage, error) {
	var merged *apd.Decimal
	quoted := false
	for i := range actions {
		raw := bytes.TrimSpace(actions[i].Result[name])
		if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
			continue
		}
		quoted = quoted || raw[0] == '"'
		value, _, err := apd.NewFromString(strings.Trim(string(raw), `"`))
		if err == nil && merged != nil {
			value, err = merge(merged, value)
		}
		if err != nil {
			return nil, fmt.Errorf("merge %s of action %s: %s: %w", name, actions[i].ID, raw, err)
		}
		merged = value
	}
	switch {
	case merged == nil:
		return json.RawMessage("null"), nil
	case quoted:
		return json.RawMessage(`"` + merged.Text('f') + `"`), nil
	default:
		return json.RawMessage(merged.Text('f')), nil
	}
}
