package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
)

// Producers retry by these codes: temporary errors must be retriable, permanent ones must not be.
func TestWhatProducersTryAgain(t *testing.T) {
	for err, want := range map[error]*kerr.Error{
		topic.ErrRetry:            kerr.NotLeaderForPartition,
		topic.ErrFull:             kerr.KafkaStorageError,
		topic.ErrDelaysFull:       kerr.ThrottlingQuotaExceeded,
		topic.ErrUncompressedSize: kerr.MessageTooLarge,
		topic.ErrRecordTooLarge:   kerr.MessageTooLarge,
		topic.ErrInvalidRecord:    kerr.InvalidRecord,
	} {
		if got := kindOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
