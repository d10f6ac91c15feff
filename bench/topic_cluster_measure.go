package bench

import (
	"context"
	"syscall"
	"time"
)

// The sizes of produced values, in bytes.
const (
	ClusterSmall = 200
	ClusterLarge = 16 << 10
)

// Replicated is the measurement of a cluster; each measure has topics or streams of its own.
type Replicated struct {
	// Small is of records of ClusterSmall bytes to each number of ClusterPartitions, and Large of
	// ClusterLarge bytes.
	Small, Large [2]Produced
	// Alone is one record of PayloadBytes at a time, Half such records at half of the rate of Small
	// to one partition, Same at the given rate.
	Alone, Half, Same Latency
}

// ClusterPartitions are the numbers of partitions that Replicated has measures of.
var ClusterPartitions = [2]int{1, 6}

// Replicate measures a cluster, for d each time; Same at the given rate, unless it is 0.
func Replicate(ctx context.Context, cluster Broker, same float64, d time.Duration) (r Replicated, err error) {
	err = serve(ctx, cluster, func(ctx context.Context, server Server) error {
		for i, partitions := range ClusterPartitions {
			if r.Small[i], err = producedBy(ctx, server, Stream{ClusterSmall, partitions, d}); err != nil {
				return err
			}
			if r.Large[i], err = producedBy(ctx, server, Stream{ClusterLarge, partitions, d}); err != nil {
				return err
			}
		}
		syscall.Sync()
		if r.Alone, err = oneAtATime(ctx, server, 1, d); err != nil {
			return err
		}
		if r.Half, err = atRate(ctx, server, r.Small[0].Sent.PerSecond()/2, d); err != nil || same == 0 {
			return err
		}
		r.Same, err = atRate(ctx, server, same, d)
		return err
	})
	return r, err
}

// producedBy is produce with the processor time.
func producedBy(ctx context.Context, server Server, stream Stream) (produced Produced, err error) {
	syscall.Sync() // earlier writes
	before, err := server.CPU()
	if err != nil {
		return produced, err
	}
	if produced.Sent, err = produce(ctx, server, stream); err != nil {
		return produced, err
	}
	after, err := server.CPU()
	produced.SentCPU = after - before
	return produced, err
}
