package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Late is how late delayed records appeared.
type Late struct {
	Records           int
	Median, P99, Most time.Duration
}

// Delay measures delayed records. Each is due at its own time within spread, the first after from
// now. With restart, the broker is killed and restarted while all are pending, before any is due.
func (e *Environment) Delay(ctx context.Context, records int, after, spread time.Duration, restart bool) (late Late, err error) {
	err = serve(ctx, e.sluice("sluice", SluiceSettings{}, plainProducer), func(ctx context.Context, server Server) error {
		late, err = delay(ctx, server.(*kafkaServer), records, after, spread, restart)
		return err
	})
	return late, err
}

func delay(ctx context.Context, server *kafkaServer, records int, after, spread time.Duration, restart bool) (late Late, err error) {
	if err := server.create(ctx, recordsTopic, 1, map[string]string{"sluice.delay.enable": "true"}); err != nil {
		return late, err
	}
	first := time.Now().Add(after)
	if err := produceDelayed(ctx, server, records, first, spread); err != nil {
		return late, err
	}
	if restart {
		if err := server.restart(ctx); err != nil {
			return late, err
		}
	}
	if time.Now().After(first) {
		return late, fmt.Errorf("%w with a delay of %s: the first of %d records is due before all are delayed", ErrBehind, after, records)
	}
	return awaitDelayed(ctx, server, records)
}

func produceDelayed(ctx context.Context, server *kafkaServer, records int, first time.Time, spread time.Duration) error {
	client, err := server.client(server.producer...)
	if err != nil {
		return err
	}
	defer client.Close()
	var failed firstError
	value := Values(PayloadBytes)
	for n := range records {
		due := first.Add(spread * time.Duration(n) / time.Duration(records))
		client.Produce(ctx, &kgo.Record{Topic: recordsTopic, Value: value(n), Headers: []kgo.RecordHeader{
			{Key: "sluice-deliver-at", Value: strconv.AppendInt(nil, due.UnixMilli(), 10)},
			{Key: "n", Value: strconv.AppendInt(nil, int64(n), 10)},
		}}, func(_ *kgo.Record, err error) { failed.set(err) })
	}
	return errors.Join(client.Flush(ctx), failed.get())
}

// awaitDelayed consumes all records, each of which must come once, and not before it is due.
func awaitDelayed(ctx context.Context, server *kafkaServer, records int) (late Late, err error) {
	times := make([]time.Duration, 0, records)
	met := make([]bool, records)
	_, consumeErr := server.consume(ctx, recordsTopic, records, true, func(r *kgo.Record) {
		due, n, readErr := delayedOf(r)
		lateness := time.Since(due)
		switch {
		case err != nil:
		case readErr != nil:
			err = readErr
		case n < 0 || n >= records || met[n]:
			err = fmt.Errorf("record %d of %d came twice, or was never sent", n, records)
		case lateness < 0:
			err = fmt.Errorf("record %d came %s before it was due", n, -lateness)
		default:
			met[n] = true
			times = append(times, lateness)
		}
	})
	if err = errors.Join(err, consumeErr); err != nil {
		return late, err
	}
	l, err := latencyOf(times, time.Second)
	return Late{Records: len(times), Median: l.Median, P99: l.P99, Most: times[len(times)-1]}, err
}

// delayedOf reads when a record was due, and its number.
func delayedOf(r *kgo.Record) (due time.Time, n int, err error) {
	n = -1
	for _, header := range r.Headers {
		switch header.Key {
		case "sluice-deliver-at":
			ms, parseErr := strconv.ParseInt(string(header.Value), 10, 64)
			due, err = time.UnixMilli(ms), errors.Join(err, parseErr)
		case "n":
			number, parseErr := strconv.Atoi(string(header.Value))
			n, err = number, errors.Join(err, parseErr)
		}
	}
	if due.IsZero() || n < 0 {
		err = errors.Join(err, fmt.Errorf("record at offset %d lacks its headers", r.Offset))
	}
	return due, n, err
}
