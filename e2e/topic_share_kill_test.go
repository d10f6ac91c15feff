package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// sharePartitions and shareLimit are the partitions of the topic, and how often its records are delivered at most.
const sharePartitions, shareLimit = 2, 4

// Members of a share group accept most records of a topic, reject some, and release some whenever they get them, while the
// server is killed with SIGKILL. Nothing that was acknowledged is delivered again, everything is delivered, and those that were rejected or
// released too often have dead letters, as have no others that were accepted.
func TestShareGroupKill(t *testing.T) {
	t.Parallel()
	kills, records := 3, 4000
	if long() {
		kills, records = 20, 20_000
	}
	s := newServer(t)
	s.start()
	r := newShareRun(s, records)
	ctx, stop := context.WithCancel(t.Context())
	var members sync.WaitGroup
	defer members.Wait()
	defer stop()
	for range 3 {
		members.Go(func() { r.member(ctx) })
	}
	for kill := range kills {
		until.True(t, "records are acknowledged", func() bool { return r.settled.Load() >= int64((kill+1)*records/(kills+2)) })
		<-time.After(rand.N(50 * time.Millisecond))
		s.kill()
		s.start()
	}
	r.awaitDone()
	stop()
	members.Wait()
	r.check()
}

// shareRun is what the members of a share group have done.
type shareRun struct {
	*testing.T
	server  *server
	records int
	settled atomic.Int64 // acknowledgements that were answered, but for releases

	mu        sync.Mutex
	delivered map[int]int           // how often, by record
	done      map[int]kgo.AckStatus // by record, what was said of it and answered
	places    map[string]int        // records by partition and offset
}

func newShareRun(s *server, records int) *shareRun {
	s.t.Helper()
	r := &shareRun{T: s.t, server: s, records: records, delivered: map[int]int{}, done: map[int]kgo.AckStatus{}, places: map[string]int{}}
	s.newTopic("orders", sharePartitions)
	s.newTopic("dead", 1, "errors.deadletterqueue.group.enable", "true")
	s.configureGroup("workers", map[string]string{
		"errors.deadletterqueue.topic.name": "dead", "errors.deadletterqueue.copy.record.enable": "true",
		"share.auto.offset.reset": "earliest", "share.delivery.count.limit": strconv.Itoa(shareLimit),
	})
	client := s.connect()
	for i := range records {
		client.Produce(r.Context(), &kgo.Record{Topic: "orders", Partition: int32(i % sharePartitions), Value: fmt.Append(nil, i)}, func(made *kgo.Record, err error) {
			if err != nil {
				r.Error(err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.places[fmt.Sprint(made.Partition, "/", made.Offset)] = i
		})
	}
	if err := client.Flush(r.Context()); err != nil {
		r.Fatal(err)
	}
	return r
}

// configureGroup changes settings of a group.
func (s *server) configureGroup(name string, settings map[string]string) {
	s.t.Helper()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
	for name, value := range settings {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	altered, err := request.RequestWith(s.t.Context(), s.connect())
	if err == nil {
		err = kerr.ErrorForCode(altered.Resources[0].ErrorCode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// kindOf is what members say of a record.
func (r *shareRun) kindOf(record int) kgo.AckStatus {
	switch record % 25 {
	case 3:
		return kgo.AckReject
	case 7:
		return kgo.AckRelease
	}
	return kgo.AckAccept
}

// member reads and acknowledges until ctx ends.
func (r *shareRun) member(ctx context.Context) {
	var mu sync.Mutex
	failed := map[int32]bool{} // partitions with acknowledgements that were refused, or not answered
	client := r.server.connect(kgo.ShareGroup("workers"), kgo.ConsumeTopics("orders"), kgo.ShareMaxRecords(40), kgo.ShareMaxRecordsStrict(),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			mu.Lock()
			defer mu.Unlock()
			for _, result := range results {
				failed[result.Partition] = failed[result.Partition] || result.Err != nil
			}
		}))
	for ctx.Err() == nil {
		polled := client.PollFetches(ctx)
		mu.Lock()
		clear(failed)
		mu.Unlock()
		polled.EachRecord(func(record *kgo.Record) { record.Ack(r.got(record)) })
		err := client.FlushAcks(ctx)
		mu.Lock()
		polled.EachRecord(func(record *kgo.Record) {
			if refused, answered := failed[record.Partition]; err == nil && answered && !refused {
				r.acknowledged(record)
			}
		})
		mu.Unlock()
	}
}

func (r *shareRun) number(record *kgo.Record) int {
	number, err := strconv.Atoi(string(record.Value))
	if err != nil {
		r.Errorf("record %q", record.Value)
	}
	return number
}

// got records a delivery, and returns what to say.
func (r *shareRun) got(record *kgo.Record) kgo.AckStatus {
	number := r.number(record)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered[number]++
	if said, known := r.done[number]; known {
		r.Errorf("record %d is delivered for the %d. time, and %v was acknowledged", number, record.DeliveryCount(), said)
	}
	return r.kindOf(number)
}

// acknowledged records that what was said of a record is durable.
func (r *shareRun) acknowledged(record *kgo.Record) {
	number := r.number(record)
	kind := r.kindOf(number)
	if kind == kgo.AckRelease {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[number] = kind
	r.settled.Add(1)
}

// awaitDone waits until the group is done with all records.
func (r *shareRun) awaitDone() {
	r.Helper()
	ends, admin := r.server.topicEnds("orders"), kadm.NewClient(r.server.connect())
	until.Succeeds(r.T, "all records are done", func() error {
		described, err := admin.DescribeShareGroupOffsets(r.Context(), "workers")
		if err != nil {
			return err
		}
		for partition, end := range ends {
			if at, known := described["workers"].Offsets.Lookup("orders", partition); !known || at.StartOffset != end {
				return fmt.Errorf("partition %d is at %d of %d", partition, at.StartOffset, end)
			}
		}
		return nil
	})
}

func (r *shareRun) check() {
	r.Helper()
	letters, repeated := map[int]string{}, 0
	r.server.readTopic("dead", until.Limit, func(letter *kgo.Record) {
		headers := map[string]string{}
		for _, h := range letter.Headers {
			headers[h.Key] = string(h.Value)
		}
		number := r.number(letter)
		if at := headers["__dlq.errors.partition"] + "/" + headers["__dlq.errors.offset"]; r.places[at] != number {
			r.Errorf("the letter of record %d has the place of %d", number, r.places[at])
		}
		if letters[number] != "" {
			repeated++
		}
		letters[number] = headers["__dlq.errors.message"] + headers["__dlq.errors.delivery.count"]
	})
	const exhausted = "Offset delivery count exceeded the threshold."
	lost, again := 0, 0
	for number := range r.records {
		letter, said := letters[number], r.kindOf(number)
		_, answered := r.done[number]
		if said != kgo.AckRelease {
			again += max(r.delivered[number]-1, 0)
		}
		switch {
		case r.delivered[number] == 0:
			r.Errorf("record %d was not delivered", number)
		case said == kgo.AckAccept && answered && letter != "":
			r.Errorf("record %d was accepted and has a dead letter: %s", number, letter)
		case said == kgo.AckReject && letter == "", said == kgo.AckRelease && letter != exhausted+strconv.Itoa(shareLimit):
			r.Errorf("record %d, of which %v is said, has the letter %q", number, said, letter)
		case letter != "" && said == kgo.AckAccept:
			lost++
		}
	}
	r.Logf("%d records have dead letters, %d of them two, %d without an answered acknowledgement; kills have caused %d more deliveries", len(letters), repeated, lost, again)
}
