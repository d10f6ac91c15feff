package aggregate

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

func TestLatencyBuckets(t *testing.T) {
	last := -1
	for _, ns := range []uint64{0, 1, 63, 64, 127, 128, 129, 255, 256, 1e6, 1e9, 1<<62 - 1, 1<<63 - 1} {
		bucket := latencyBucket(ns)
		if bucket < last || bucket >= latencyBuckets {
			t.Errorf("bucket %d of %d ns, after %d", bucket, ns, last)
		}
		last = bucket
	}
	if last != latencyBuckets-1 {
		t.Errorf("the longest duration is in bucket %d, want %d", last, latencyBuckets-1)
	}
	for bucket := range latencyBuckets {
		if got := latencyBucket(latencyMiddle(bucket)); got != bucket {
			t.Fatalf("the middle of bucket %d is in bucket %d", bucket, got)
		}
	}
}

func TestLatencyWithinOnePercent(t *testing.T) {
	a := mustParse(t, "latency")
	rapid.Check(t, func(t *rapid.T) {
		longest := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, 24 * time.Hour, math.MaxInt64}).Draw(t, "longest")
		tooks := rapid.SliceOfN(rapid.Int64Range(0, int64(longest)), 1, 300).Draw(t, "tooks")
		var outcomes []bulk.Outcome
		var mean float64
		for i, took := range tooks {
			outcomes = append(outcomes, bulk.Outcome{Succeeded: i%3 > 0, Took: time.Duration(took)})
			mean += float64(took) / float64(len(tooks))
		}
		var got struct {
			P50  float64 `json:"p50_ms"`
			P90  float64 `json:"p90_ms"`
			P99  float64 `json:"p99_ms"`
			Max  float64 `json:"max_ms"`
			Mean float64 `json:"mean_ms"`
		}
		if err := json.Unmarshal([]byte(reduceAll(t, a, cut(t, outcomes)...)["latency"]), &got); err != nil {
			t.Fatal(err)
		}
		slices.Sort(tooks)
		rank := func(percent int) float64 { return float64(tooks[(len(tooks)*percent+99)/100-1]) }
		near(t, "p50", got.P50, rank(50), 0.01)
		near(t, "p90", got.P90, rank(90), 0.01)
		near(t, "p99", got.P99, rank(99), 0.01)
		near(t, "max", got.Max, rank(100), 1e-12)
		if math.Abs(got.Mean*1e6-mean) > 1+1e-9*mean {
			t.Fatalf("mean %v ms, want %v ns", got.Mean, mean)
		}
	})
}

func near(t *rapid.T, name string, milliseconds, nanoseconds, share float64) {
	t.Helper()
	if math.Abs(milliseconds*1e6-nanoseconds) > share*nanoseconds+1e-9 {
		t.Fatalf("%s: %v ms, want %v ns", name, milliseconds, nanoseconds)
	}
}

func TestLatencyOfAClockThatWentBack(t *testing.T) {
	got := reduceAll(t, mustParse(t, "latency"), []bulk.Outcome{{Took: -time.Second}})["latency"]
	if want := `{"p50_ms":0,"p90_ms":0,"p99_ms":0,"max_ms":0,"mean_ms":0}`; got != want {
		t.Errorf("got %s", got)
	}
}

func TestLatencyStateIsSmall(t *testing.T) {
	a := mustParse(t, "latency")
	var outcomes []bulk.Outcome
	for took := time.Microsecond; took < 24*time.Hour; took += took/200 + 1 {
		outcomes = append(outcomes, bulk.Outcome{Took: took})
	}
	partial, err := a.Reduce(nil, outcomes)
	if err != nil || len(partial) > 8<<10 {
		t.Errorf("%d bytes for durations from 1 µs to 24 h, error %v", len(partial), err)
	}
}
