package broker

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// The maximum number of producers of a partition fits into one value of the metadata:
// otherwise no old record could be removed.
func TestASnapshotOfAllProducersCanBeStored(t *testing.T) {
	last := sentBatch{First: math.MaxInt32, Last: math.MaxInt32, Base: math.MaxInt64}
	known := map[int64]*producer{}
	for i := range int64(topic.ProducersMax) {
		known[math.MaxInt64-i] = &producer{
			Epoch: math.MaxInt16, Sent: []sentBatch{last, last, last, last, last}, Timestamp: time.Now().UnixMilli(),
		}
	}
	transactions := newTransactions()
	for i := range int64(openMax) {
		transactions.open[math.MaxInt64-i] = math.MaxInt64
	}
	for i := range int64(abortedMax) { // one every million offsets, of different producers
		transactions.aborted = append(transactions.aborted, Aborted{1<<51 + i, i << 20, i<<20 + 1<<19})
	}
	p := producers{byID: known, transactions: transactions, max: topic.ProducersMax}
	p.makeRoom()
	if len(p.byID) < topic.ProducersMax/2 {
		t.Errorf("%d producers are left beside the aborted transactions", len(p.byID))
	}
	value, err := json.Marshal(newSnapshot(&p, math.MaxUint64, math.MaxInt64))
	if err != nil || len(value) > 4<<20 {
		t.Errorf("%d bytes, %v: values of the metadata are at most 4 MiB", len(value), err)
	}
	if err := (topic.Config{ProducersMax: topic.ProducersMax + 1}).Validate(); err == nil {
		t.Error("more producers than can be stored are allowed")
	}
}
