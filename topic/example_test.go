package topic_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// A batch is what producers send and logs keep: its records are read without a broker.
func ExampleNewBatch() {
	batch, err := topic.NewBatch([]topic.Record{
		{Offset: 7, Timestamp: 1_700_000_000_000, Key: []byte("alice"), Value: []byte("tea")},
		{Offset: 9, Timestamp: 1_700_000_000_500, Key: []byte("alice"), Headers: []topic.Header{{Key: "why", Value: []byte("canceled")}}},
	}, topic.BatchOptions{Base: 7})
	if err != nil {
		log.Fatal(err)
	}
	for record, err := range batch.Records() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s %q deleted: %t\n", record.Offset, record.Key, record.Value, record.Value == nil)
	}
	fmt.Println("intact:", batch.Check() == nil)
	batch[len(batch)-1]++
	fmt.Println("after a flipped bit:", errors.Is(batch.Check(), topic.ErrCorrupt))
	// Output:
	// 7 alice "tea" deleted: false
	// 9 alice "" deleted: true
	// intact: true
	// after a flipped bit: true
}

// The settings of a topic have the names of Kafka's; those that are not set have the broker's values.
func ExampleParseSettings() {
	broker := topic.Config{Retention: 7 * 24 * time.Hour}.WithDefaults()
	settings, err := topic.ParseSettings(map[string]string{"max.message.bytes": "100000"}, broker)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(settings.Retention, settings.MaxMessageBytes)
	_, err = topic.ParseSettings(map[string]string{"retention.ms": "soon"}, broker)
	fmt.Println("soon is refused:", errors.Is(err, topic.ErrInvalidSetting))
	// Output:
	// 168h0m0s 100000
	// soon is refused: true
}
