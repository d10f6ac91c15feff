package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// "sluice top" shows what each part of a real server has: its metrics have the names that it reads.
func TestTop(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--bulk-requests-per-second", "500")
	s.call("PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":1}`, http.StatusCreated, nil)
	s.enter("shop", "a", http.StatusCreated)
	s.enter("shop", "b", http.StatusCreated)
	sluice(t, "bulk", "submit", "../examples/zipcodes.csv", "--tenant", "acme", "--type", "echo", "--server", s.url(""))
	s.newTopic("orders", 1)
	fill(t, s.kafka, "orders", 1, 10)
	sluice(t, "topic", "consume", "orders", "--group", "billing", "--max", "3", "--brokers", s.kafka)
	type row struct {
		Tenant, Type, Room, Topic, Group                           string
		Succeeded                                                  float64 `json:"succeeded_per_second"`
		Limited                                                    float64 `json:"limited_per_second"`
		Attempts                                                   float64 `json:"attempts_per_second"`
		Finished, Waiting, Inside, Partitions, Records, Bytes, Lag int64
	}
	until.Succeeds(t, "sluice top shows all parts", func() error {
		var r struct {
			Process struct {
				Uptime float64 `json:"uptime_seconds"`
				Memory int64   `json:"memory_bytes"`
				Files  int64   `json:"open_files"`
				Max    int64   `json:"max_files"`
			}
			Tenants, Types, Rooms, Topics, Groups []row
			NonReady                              map[string]int64 `json:"non_ready"`
		}
		text := sluice(t, "top", "--once", "--json", "--interval", "200ms", "--server", s.url(""))
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if r.Process.Uptime > 0 && r.Process.Memory > 0 && r.Process.Files > 0 && r.Process.Max > 0 && len(r.NonReady) > 0 &&
			slices.ContainsFunc(r.Tenants, func(r row) bool { return r.Tenant == "acme" && r.Succeeded > 0 && r.Limited > 0 && r.Finished > 0 }) &&
			slices.ContainsFunc(r.Types, func(r row) bool { return r.Type == "echo" && r.Attempts > 0 && r.Waiting > 0 }) &&
			slices.ContainsFunc(r.Rooms, func(r row) bool { return r.Room == "shop" && r.Inside == 1 && r.Waiting == 1 }) &&
			slices.ContainsFunc(r.Topics, func(r row) bool { return r.Topic == "orders" && r.Partitions == 1 && r.Records == 10 && r.Bytes > 0 }) &&
			slices.ContainsFunc(r.Groups, func(r row) bool { return r.Group == "billing" && r.Topic == "orders" && r.Lag == 7 }) {
			return nil
		}
		return errors.New(text)
	})
}
