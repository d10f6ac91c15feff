package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A request that names one thing ten thousand times gets the answer of one that names it
// once: a megabyte of names must not make a gigabyte of answers.
func TestRepeatsAreAnsweredOnce(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	s := start(t, b, Options{})
	create(t, b, "orders", 2)
	for name, request := range map[string]func(times int) kmsg.Request{
		"DescribeConfigs": func(times int) kmsg.Request {
			r := kmsg.NewPtrDescribeConfigsRequest()
			broker := kmsg.NewDescribeConfigsRequestResource()
			broker.ResourceType, broker.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
			r.Version, r.Resources = 4, slices.Repeat([]kmsg.DescribeConfigsRequestResource{broker}, times)
			return r
		},
		"DescribeGroups": func(times int) kmsg.Request {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Version, r.Groups = 5, slices.Repeat([]string{"workers"}, times)
			return r
		},
		"DescribeProducers": func(times int) kmsg.Request {
			r := kmsg.NewPtrDescribeProducersRequest()
			of := kmsg.NewDescribeProducersRequestTopic()
			of.Topic, of.Partitions = "orders", slices.Repeat([]int32{1}, times)
			r.Topics = []kmsg.DescribeProducersRequestTopic{of}
			return r
		},
		"OffsetFetch by groups": func(times int) kmsg.Request {
			r := kmsg.NewPtrOffsetFetchRequest()
			of := kmsg.NewOffsetFetchRequestGroup()
			of.Group = "workers"
			r.Version, r.Groups = 8, slices.Repeat([]kmsg.OffsetFetchRequestGroup{of}, times)
			return r
		},
		"OffsetFetch by partitions": func(times int) kmsg.Request {
			r := kmsg.NewPtrOffsetFetchRequest()
			of := kmsg.NewOffsetFetchRequestTopic()
			of.Topic, of.Partitions = "orders", slices.Repeat([]int32{1}, times)
			r.Version, r.Group, r.Topics = 7, "workers", []kmsg.OffsetFetchRequestTopic{of}
			return r
		},
		"Metadata": func(times int) kmsg.Request {
			r := kmsg.NewPtrMetadataRequest()
			of := kmsg.NewMetadataRequestTopic()
			of.Topic = kmsg.StringPtr("orders")
			r.Version, r.Topics = 12, slices.Repeat([]kmsg.MetadataRequestTopic{of}, times)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, s)
			size := func(times int) int {
				r := request(times)
				return len(ask[kmsg.Response](p, r.GetVersion(), r).AppendTo(nil))
			}
			if one, many := size(1), size(10_000); many != one {
				t.Errorf("the answer has %d bytes, and %d where the request repeats itself", one, many)
			}
		})
	}
}
