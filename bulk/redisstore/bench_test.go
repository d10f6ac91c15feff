//go:build redis

package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// BenchmarkEndToEnd runs no-op jobs with payloads of 100 bytes from upload to outcome.
func BenchmarkEndToEnd(b *testing.B) {
	for _, persist := range []redistest.Persist{redistest.EverySecond, redistest.Always} {
		b.Run(string(persist), func(b *testing.B) {
			server := redistest.Start(b, redistest.Options{Persist: persist})
			config := bulk.Config{RequestsPerSecond: -1}.WithDefaults()
			s, err := Open(b.Context(), Options{URL: server.URL(), Bulk: config, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			mux := bulk.NewMux()
			mux.HandleFunc("noop", func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
			engine, err := engine.New(s, mux, config, engine.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				b.Fatal(err)
			}
			if err := engine.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = engine.Stop(context.Background()) }()
			payloads := make([][]byte, 1000)
			for i := range payloads {
				payloads[i] = fmt.Appendf(nil, `{"n":%d,"text":%q}`, i, "some eighty bytes of text for one job of a bulk action, which does nothing at al")
			}
			b.ResetTimer()
			began := time.Now()
			if _, _, err := engine.Create(b.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "noop"}); err != nil {
				b.Fatal(err)
			}
			for n := 0; n < b.N; n += len(payloads) {
				if _, err := engine.Append(b.Context(), "a", int64(n), payloads[:min(len(payloads), b.N-n)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "enqueued/s")
			if _, err := engine.Seal(b.Context(), "a", int64(b.N)); err != nil {
				b.Fatal(err)
			}
			began = time.Now()
			err = engine.Watch(b.Context(), "a", 20*time.Millisecond, func(bulk.Action) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "done/s")
		})
	}
}

// BenchmarkSet sets the limits of as many tenants as it has iterations, on three shards: with
// -benchtime=10000x the last ones are set beside 9,999 others.
func BenchmarkSet(b *testing.B) {
	s := open(b, Options{URL: redistest.Start(b, redistest.Options{}).URL(), Shards: 3})
	info := func(name string) float64 {
		text, err := s.db.Do(b.Context(), s.db.B().Info().Section("stats").Build()).ToString()
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	before := map[string]float64{}
	names := []string{"total_commands_processed", "total_net_input_bytes", "total_net_output_bytes"}
	for _, name := range names {
		before[name] = info(name)
	}
	b.ResetTimer()
	for n := range b.N {
		if err := s.Set(b.Context(), bulk.SettingsChange{Name: fmt.Sprint("tenant", n), Tenant: &bulk.Tenant{Weight: 2, RequestsPerSecond: 10}}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	for _, name := range names {
		b.ReportMetric((info(name)-before[name])/float64(b.N), strings.TrimPrefix(name, "total_")+"/op")
	}
}
