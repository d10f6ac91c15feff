package broker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestViewShowsAPartOfItsSource(t *testing.T) {
	for name, tail := range map[string]int64{"memory": 1 << 20, "log": 1} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, storetest.NewMemory(), topic.Config{TailBytes: tail})
			orders := create(t, b, "orders", nil)
			view, err := b.Create(t.Context(), topic.Spec{Name: "large", Settings: map[string]string{
				"sluice.view.of": "orders", "sluice.view.where": `string(value).startsWith("large")`,
			}}, false)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := range 300 {
				value := fmt.Sprint("small", i)
				if i%100 == 50 {
					value = fmt.Sprint("large", i)
					want = append(want, value)
				}
				send(t, orders, batchOf(anybody, time.Now().UnixMilli(), value))
			}
			for range 2 { // the second time the hidden ranges are known
				if offsets, values := readAll(t, view, 0, 1<<20); !slices.Equal(values, want) || !slices.Equal(offsets, []int64{50, 150, 250}) {
					t.Fatalf("values %v at %v", values, offsets)
				}
			}
			fetched, err := view.Read(t.Context(), 0, 251, 1<<20)
			if err != nil || fetched.Size != 0 || fetched.Next != 300 || fetched.HighWatermark != 300 {
				t.Errorf("after the last: %+v, %v; want nothing, and to go on at 300", fetched, err)
			}
			if fetched, err = view.Read(t.Context(), 0, 300, 1<<20); err != nil || fetched.Size != 0 || fetched.Next != 300 {
				t.Errorf("at the end: %+v, %v; want nothing", fetched, err)
			}
			if _, err = view.Read(t.Context(), 0, 301, 1<<20); !errors.Is(err, topic.ErrOffsetOutOfRange) {
				t.Errorf("beyond the end: %v, want ErrOffsetOutOfRange", err)
			}
		})
	}
}
