package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Viewed is the measurement of View.
type Viewed struct {
	// Whole and Shown are the bytes of answers to a consumer of the topic and to one of the view.
	Whole, Shown int64
	// WholeTook and ShownTook are the times in which each read all records.
	WholeTook, ShownTook time.Duration
	// Batches is the number of batches of the topic's records.
	Batches int
}

// Share returns the view's bytes as a share of the topic's.
func (v Viewed) Share() float64 { return float64(v.Shown) / float64(v.Whole) }

const (
	// viewPasses means that the view shows one of viewPasses records.
	viewPasses = 100
	// asSource means that a view has as many partitions as its source.
	asSource = -1
	// viewBatch is the least number of records of a batch.
	viewBatch = 100
	// viewBatchBytes has space for half as many more: the client also sends batches that are not
	// full.
	viewBatchBytes = viewBatch * (PayloadBytes + 30) * 3 / 2
)

// View measures the traffic of a view that shows one in a hundred records, in uncompressed batches
// of 100 to 160 records on average: small ones, since each batch that the view shows a part of has
// an overhead.
func (e *Environment) View(ctx context.Context, records int) (v Viewed, err error) {
	producer := []kgo.Opt{
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(50 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(viewBatchBytes), kgo.MaxBufferedRecords(200_000),
	}
	broker := e.sluice("sluice", SluiceSettings{}, producer)
	err = serve(ctx, broker, func(ctx context.Context, server Server) error {
		v, err = view(ctx, server.(*kafkaServer), records)
		return err
	})
	return v, err
}

func view(ctx context.Context, server *kafkaServer, records int) (v Viewed, err error) {
	if err := server.create(ctx, recordsTopic, 1, nil); err != nil {
		return v, err
	}
	settings := map[string]string{"sluice.view.of": recordsTopic, "sluice.view.where": `headers.tag == "paid"`}
	if err := server.create(ctx, "paid", asSource, settings); err != nil {
		return v, err
	}
	if v.Batches, err = produceTagged(ctx, server, records); err != nil {
		return v, err
	}
	if v.Batches > records/viewBatch {
		return v, fmt.Errorf("%d records in %d batches: want at least %d in each", records, v.Batches, viewBatch)
	}
	whole, err := server.consume(ctx, recordsTopic, records, false, nil)
	if err != nil {
		return v, err
	}
	shown, err := server.consume(ctx, "paid", records/viewPasses, true, func(r *kgo.Record) {
		if tag := string(r.Headers[0].Value); tag != "paid" && err == nil {
			err = fmt.Errorf("the view shows a record whose tag is %q", tag)
		}
	})
	v.Whole, v.Shown, v.WholeTook, v.ShownTook = whole.Bytes, shown.Bytes, whole.Took, shown.Took
	return v, err
}

// produceTagged sends records, of which one in viewPasses has the tag that the view shows, and
// returns the number of batches.
func produceTagged(ctx context.Context, server *kafkaServer, records int) (batches int, err error) {
	counter := &batchCounter{}
	client, err := server.client(append(server.producer, kgo.WithHooks(counter))...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	var failed firstError
	value := Values(PayloadBytes)
	for n := range records {
		tag := "open"
		if n%viewPasses == 0 {
			tag = "paid"
		}
		client.Produce(ctx, &kgo.Record{
			Topic: recordsTopic, Value: value(n), Headers: []kgo.RecordHeader{{Key: "tag", Value: []byte(tag)}},
		}, func(_ *kgo.Record, err error) { failed.set(err) })
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	return int(counter.batches.Load()), failed.get()
}
