package bench

import (
	"testing"
	"time"
)

// benchmarkFor is how long one iteration of a benchmark of topic produces.
const benchmarkFor = 2 * time.Second

// eachBroker runs a benchmark of every broker.
func eachBroker(b *testing.B, brokers []Broker, run func(*testing.B, Broker)) {
	for _, broker := range brokers {
		b.Run(broker.Name, func(b *testing.B) { run(b, broker) })
	}
}

// BenchmarkProduce sends 100-byte records to one partition. An iteration is two seconds of sending.
func BenchmarkProduce(b *testing.B) {
	eachBroker(b, environment.Brokers(), func(b *testing.B, broker Broker) {
		var total float64
		for range b.N {
			produced, err := Produce(b.Context(), broker, Stream{Bytes: PayloadBytes, Partitions: 1, For: benchmarkFor}, false)
			if err != nil {
				b.Fatal(err)
			}
			total += produced.Sent.PerSecond()
		}
		b.ReportMetric(total/float64(b.N), "records/s")
	})
}

// BenchmarkConsume reads the records of two seconds of producing. An iteration is both; the rate is
// of reading.
func BenchmarkConsume(b *testing.B) {
	eachBroker(b, environment.KafkaBrokers(), func(b *testing.B, broker Broker) {
		var total float64
		for range b.N {
			produced, err := Produce(b.Context(), broker, Stream{Bytes: PayloadBytes, Partitions: 1, For: benchmarkFor}, true)
			if err != nil {
				b.Fatal(err)
			}
			total += produced.Read.PerSecond()
		}
		b.ReportMetric(total/float64(b.N), "records/s")
	})
}

// BenchmarkOneAtATime sends one record after another. An iteration is two seconds of sending.
func BenchmarkOneAtATime(b *testing.B) {
	eachBroker(b, environment.Brokers(), func(b *testing.B, broker Broker) {
		var median, p99 time.Duration
		for range b.N {
			l, err := OneAtATime(b.Context(), broker, 1, benchmarkFor)
			if err != nil {
				b.Fatal(err)
			}
			median, p99 = median+l.Median, p99+l.P99
		}
		b.ReportMetric(median.Seconds()*1000/float64(b.N), "median-ms")
		b.ReportMetric(p99.Seconds()*1000/float64(b.N), "p99-ms")
	})
}
