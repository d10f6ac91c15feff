package main

import (
	"encoding/json"

	"github.com/cockroachdb/apd/v3"

	"github.com/sluice-project/sluice/bulk"
)

// rawResult writes the values of a result as the store keeps them.
func rawResult(values map[string]any) map[string]json.RawMessage {
	result := map[string]json.RawMessage{}
	for name, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		result[name] = raw
	}
	return result
}

// countAndSum is the result of an action with the aggregates count, sum:amount
// and avg:amount, whose jobs are echoed.
func countAndSum(a *bulk.Action, payloads [][]byte) map[string]any {
	sum := new(apd.Decimal)
	for _, payload := range payloads {
		var row struct{ Amount string }
		if err := json.Unmarshal(payload, &row); err != nil {
			panic(err)
		}
		value, _, err := apd.NewFromString(row.Amount)
		if err != nil {
			panic(err)
		}
		if _, err := apd.BaseContext.Add(sum, sum, value); err != nil {
			panic(err)
		}
	}
	return map[string]any{"count": a.Succeeded, "sum:amount": sum.Text('f'), "avg:amount": "1.5"}
}
