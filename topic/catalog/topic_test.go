package catalog_test

import (
	"slices"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Single servers were node 0 before they were clusters of one.
func TestPartitionsOfNodeZeroAreNodeOnes(t *testing.T) {
	record, err := catalog.ReadTopic(topic.Item{Key: "topics/orders", Value: []byte(
		`{"id":"00000000000000000000000000000001","partitions":[{"epoch":3,"replicas":[0]},{"epoch":3,"replicas":[2,3]}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := record.Replicas(); !slices.Equal(got[0], []int32{1}) || !slices.Equal(got[1], []int32{2, 3}) {
		t.Errorf("replicas %v, want [[1] [2 3]]", got)
	}
}
