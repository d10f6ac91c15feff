package watch

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// A client that does not read is disconnected, and does not delay others.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFake()
		h := start(t, engine)
		slow := &written{header: http.Header{}, block: make(chan struct{})}
		defer visitWith(t, h, 2, slow)()
		quick, leave := visit(t, h, 4)
		defer leave()
		time.Sleep(1500 * time.Millisecond)
		if h.Streams() != 2 || !strings.Contains(quick.String(), "4 1 at 500") {
			t.Errorf("%d streams; %q", h.Streams(), quick)
		}
		time.Sleep(time.Second)
		if h.Streams() != 1 || slow.String() != "" {
			t.Errorf("%d streams; the slow one got %q", h.Streams(), slow)
		}
	})
}

// stuck is a sink whose connection accepts nothing any more.
type stuck struct{ none }

func (stuck) flush(time.Time) error { return errSlow }

func TestSlowStreamIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, newFake())
		for _, sink := range []sink{stuck{}, none{}} {
			if err := h.reserve(place{room: "shop"}); err != nil {
				t.Fatal(err)
			}
			s := &stream{sink: sink, spec: Stream{Room: "shop", Format: format}}
			h.add(s)
			h.deliver(s, &engine.Result{Answer: engine.Answer{State: room.Waiting, Position: 500, NextPoll: time.Second}})
		}
		if h.Streams() != 2 {
			t.Errorf("%d streams", h.Streams())
		}
		time.Sleep(3 * time.Second)
		registry := prometheus.NewRegistry()
		registry.MustRegister(h.Collector())
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			metric := family.Metric[0]
			got[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
		want := map[string]float64{"room_streams": 1, "room_stream_events_total": 2, "room_streams_refused_total": 0, "room_streams_slow_total": 1}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
