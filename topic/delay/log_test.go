package delay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// logBytes returns the size of the log.
func (k *delayKit) logBytes() (bytes int) {
	k.t.Helper()
	first, last, err := k.log.Ends(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	if first > last {
		return 0
	}
	entries, err := k.log.Read(k.t.Context(), first, 1<<30)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, entry := range entries {
		bytes += len(entry.Data)
	}
	return bytes
}

// Neither operations nor a record that waits for long keep the log growing.
func TestDelayLogStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const compact = 20_000
		config := topic.DelayConfig{CompactBytes: compact}
		k := newDelayKit(t, config)
		k.add(k.delayed(0, 300*24*time.Hour))
		for i := range 3000 {
			k.add(k.delayed(2*i+1, time.Millisecond, 200*24*time.Hour))
			if err := k.node.delays.Cancel(t.Context(), fmt.Sprint(2*i+2)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			if size := k.logBytes(); size > 3*compact {
				t.Fatalf("the log has %d bytes with %d records that wait, want it rewritten from %d on", size, k.node.delays.Pending(), compact)
			}
		}
		time.Sleep(time.Second)
		k.node.delays.Close(t.Context())
		k.open(config)
		time.Sleep(300 * 24 * time.Hour)
		if shown := k.shown(); len(shown) != 3001 || shown[3000] != "0" {
			t.Fatalf("%d appeared, the last %s", len(shown), shown[len(shown)-1])
		}
		if size := k.logBytes(); size != 0 {
			t.Errorf("the log has %d bytes when nothing waits, want none", size)
		}
	})
}

// A batch is larger than one entry, and has records that are released alone because each
// is as large as a release may be.
func TestLargeDelayedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDelayKit(t, topic.DelayConfig{})
		var records []topic.Record
		for i := range int64(5) {
			value := make([]byte, 900<<10)
			value[0] = byte(i)
			records = append(records, topic.Record{Offset: i, Value: value})
		}
		batch, err := topic.NewBatch(records, topic.BatchOptions{Codec: topic.CodecZstd})
		if err != nil {
			t.Fatal(err)
		}
		_, delayed, err := topic.DelayConfig{}.Split(batch, uncompressed(batch), time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		k.add(delayed)
		time.Sleep(2 * time.Hour)
		for i, value := range k.shown() {
			if len(value) != 900<<10 || value[0] != byte(i) {
				t.Errorf("record %d has %d bytes and begins with %d", i, len(value), value[0])
			}
		}
		if n := len(k.shown()); n != 5 || k.released() != 5 {
			t.Errorf("%d appeared in %d releases, want 5 in 5", n, k.released())
		}
	})
}
