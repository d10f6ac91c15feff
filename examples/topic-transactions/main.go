package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	brokers = flag.String("brokers", "127.0.0.1:9092", "where the server is")
	from    = flag.String("from", "sluice.bulk.events,sluice.room.events", "the topics with events")
	to      = flag.String("to", "activity", "the topic for the lines")
	id      = flag.String("id", "activity-1", "the transactional id of this program; each has its own")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// run writes lines until ctx ends.
func run(ctx context.Context) error {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(*brokers), kgo.TransactionalID(*id), kgo.ConsumerGroup("activity"), kgo.InstanceID(*id),
		kgo.ConsumeTopics(strings.Split(*from, ",")...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DefaultProduceTopic(*to), kgo.AllowAutoTopicCreation(),
		kgo.SessionTimeout(10*time.Second), kgo.TransactionTimeout(10*time.Second))
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		if err := step(ctx, session); err != nil {
			return err
		}
	}
}

// step writes the lines of the next events in one transaction.
func step(ctx context.Context, session *kgo.GroupTransactSession) error {
	events := session.PollRecords(ctx, 100)
	if err := events.Err(); err != nil {
		return err
	}
	if err := session.Begin(); err != nil {
		return err
	}
	written := kgo.AbortingFirstErrPromise(session.Client())
	for event := range events.RecordsAll() {
		text, err := line(event.Value)
		if err != nil {
			return errors.Join(fmt.Errorf("%s, offset %d: %w", event.Topic, event.Offset, err), session.Client().AbortBufferedRecords(ctx))
		}
		session.Produce(ctx, &kgo.Record{Key: event.Key, Value: text}, written.Promise())
	}
	err := written.Err()
	committed, ended := session.End(ctx, kgo.TransactionEndTry(err == nil))
	if committed {
		fmt.Printf("%d events\n", events.NumRecords())
	}
	return errors.Join(err, ended)
}

// line returns the short form of an event, a CloudEvent of bulk or of a room.
func line(event []byte) ([]byte, error) {
	var e struct {
		ID      string    `json:"id"`
		Type    string    `json:"type"`
		Subject string    `json:"subject"`
		Time    time.Time `json:"time"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %s %s %s", e.Time.Format(time.RFC3339), strings.TrimPrefix(e.Type, "io.sluice."), e.Subject, e.ID), nil
}
