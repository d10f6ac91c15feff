package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A compaction, and delayed records that are delivered, have a span each.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := tracetest.NewInMemoryExporter()
		b := startBroker(t, storetest.NewMemory(), topic.Config{}, broker.WithTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(made))))
		fill(t, create(t, b, "log", compacted()), map[string]string{})
		send(t, create(t, b, "orders", delays), delayedBatch(t, nil, "10m", ""))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		stopBroker(t, b)
		want := map[string][]string{
			"compact log":    {"messaging.destination.name=log", "messaging.destination.partition.id=0"},
			"deliver orders": {"messaging.destination.name=orders", "messaging.destination.partition.id=0", "messaging.batch.message_count=1"},
		}
		spans := made.GetSpans()
		if len(spans) != len(want) {
			t.Errorf("there are %d spans, want %d", len(spans), len(want))
		}
		for _, span := range spans {
			has := map[string]int64{}
			for _, a := range span.Attributes {
				has[string(a.Key)+"="+a.Value.String()] = 1
				has[string(a.Key)] = a.Value.AsInt64()
			}
			for _, attribute := range want[span.Name] {
				if has[attribute] == 0 {
					t.Errorf("the span %s lacks %s: %v", span.Name, attribute, span.Attributes)
				}
			}
			if bytes, removed := has["sluice.bytes"], has["sluice.bytes.removed"]; want[span.Name] == nil || bytes <= 0 || span.Name == "compact log" && (removed < bytes/2 || removed >= bytes) {
				t.Errorf("the span %s: %v", span.Name, span.Attributes)
			}
		}
	})
}
